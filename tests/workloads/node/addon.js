// Per batch the addon leaves 100 blocks of 700 bytes and frees 100 others. The first argument is
// the addon's path; with "clean" as the second, nothing is left. The protocol and the account are
// those of ../c/batch.h.
"use strict";
const fs = require("fs");
const addon = require(process.argv[2]);

const leaks = process.argv[3] !== "clean";
const size = 700;
let kept = 0;
const truth = process.env.BATCH_TRUTH;
const byte = Buffer.alloc(1);

function account(batch) {
  if (!truth) return;
  const sites = { addon_leaks: { blocks: kept, bytes: kept * size } };
  fs.appendFileSync(truth, JSON.stringify({ batch, sites }) + "\n");
}

account(0);
fs.writeSync(1, `READY ${process.pid}\n`);
for (let batch = 1; fs.readSync(0, byte) === 1; batch++) {
  for (let i = 0; i < 100; i++) {
    addon.clean(size);
    if (leaks) {
      addon.leak(size);
      kept++;
    }
  }
  account(batch);
  fs.writeSync(1, `DONE ${batch}\n`);
}
