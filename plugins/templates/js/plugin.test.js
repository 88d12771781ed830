// Run by: node --test
import assert from "node:assert/strict";
import { test } from "node:test";

import { Plugin } from "./plugin.js";
import { Bench, candidate } from "./sdk/testing.js";

test("the next deadline goes first", () => {
  const bench = new Bench(new Plugin(), { maxBatch: 2 });
  const plan = bench.plan([candidate({ deadlineUs: 900 }), candidate(), candidate({ deadlineUs: 500 })]);
  assert.deepEqual(plan?.fire, [2, 0]);
});
