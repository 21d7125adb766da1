// Per batch leaves 100 blocks of 700 bytes by way of leakHere(), a function of this script that a
// runtime compiles. The first argument is the addon's path. The protocol and the account are those
// of ../c/batch.h.
"use strict";
const fs = require("fs");
const addon = require(process.argv[2]);

const size = 700;
let kept = 0;
const truth = process.env.BATCH_TRUTH;
const byte = Buffer.alloc(1);

function leakHere() {
  addon.leak(size);
  kept++;
}

function account(batch) {
  if (!truth) return;
  const sites = { leakHere: { blocks: kept, bytes: kept * size } };
  fs.appendFileSync(truth, JSON.stringify({ batch, sites }) + "\n");
}

account(0);
fs.writeSync(1, `READY ${process.pid}\n`);
for (let batch = 1; fs.readSync(0, byte) === 1; batch++) {
  for (let i = 0; i < 100; i++) leakHere();
  account(batch);
  fs.writeSync(1, `DONE ${batch}\n`);
}
