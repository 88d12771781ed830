import assert from "node:assert/strict";
import { test } from "node:test";

import { Plugin } from "./plugin.js";
import { Bench, candidate } from "./sdk/testing.js";

const of = (tenant) => candidate({ keys: { tenant } });

test("a loud tenant does not starve a quiet one", () => {
  const bench = new Bench(new Plugin(), { maxBatch: 4, keys: ["tenant"] });
  const loud = [...Array(5).fill(of("loud")), of("quiet")];
  assert.deepEqual(bench.plan(loud).fire, [0, 5, 1, 2]);
  bench.done(loud.slice(0, 4));
  assert.deepEqual(bench.plan(loud).fire, [5, 0, 1, 2]);
});

test("weights are shares", () => {
  const bench = new Bench(new Plugin(), { config: { weights: { gold: 3 } }, maxBatch: 4, keys: ["tenant"] });
  const candidates = [0, 1, 2, 3].flatMap(() => [of("gold"), of("free")]);
  assert.deepEqual(bench.plan(candidates).fire, [0, 1, 2, 4]);
  assert.throws(() => new Bench(new Plugin(), { config: { weights: { gold: 0 } } }), /weights.gold must be above 0/);
});

test("who came first goes first, of like turns", () => {
  const bench = new Bench(new Plugin(), { maxBatch: 3, keys: ["tenant"] });
  const came = (tenant, arrivalUs) => candidate({ keys: { tenant }, arrivalUs });
  assert.deepEqual(bench.plan([came("a", 30), came("b", 20), came("c", 10), came("c", 5)]).fire, [3, 1, 0]);
});
