// A primary and two workers; per batch each worker leaves 100 blocks of 700 bytes in the addon.
// The first argument is the addon's path. The protocol and the account are those of ../c/batch.h.
"use strict";
const cluster = require("cluster");
const fs = require("fs");
const readline = require("readline");

const size = 700;
const each = 100;

function account(batch) {
  const blocks = batch * each * 2;
  const sites = { addon_leaks: { blocks, bytes: blocks * size } };
  fs.appendFileSync(process.env.BATCH_TRUTH, JSON.stringify({ batch, sites }) + "\n");
}

function work() {
  const addon = require(process.argv[2]);
  process.on("message", () => {
    for (let i = 0; i < each; i++) addon.leak(size);
    process.send("done");
  });
  process.send("ready");
}

function primary() {
  const workers = [cluster.fork(), cluster.fork()];
  let batch = 0;
  let waiting = workers.length;
  const answer = () => {
    if (--waiting > 0) return;
    account(batch);
    fs.writeSync(1, batch === 0 ? `READY ${process.pid}\n` : `DONE ${batch}\n`);
  };
  for (const worker of workers) worker.on("message", answer);
  const input = readline.createInterface({ input: process.stdin });
  input.on("line", () => {
    batch++;
    waiting = workers.length;
    for (const worker of workers) worker.send("batch");
  });
  input.on("close", () => process.exit(0));
}

if (cluster.isPrimary) primary();
else work();
