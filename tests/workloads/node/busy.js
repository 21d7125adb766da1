// Allocates and frees natively for ever and says often that it lives: attach under load.
"use strict";
const fs = require("fs");
const zlib = require("zlib");

fs.writeSync(1, `READY ${process.pid}\n`);
let beats = 0;
setInterval(() => fs.writeSync(1, `ALIVE ${++beats}\n`), 200);
(function work() {
  for (let i = 0; i < 10; i++) zlib.deflateSync(Buffer.alloc(5000, i));
  setImmediate(work);
})();
