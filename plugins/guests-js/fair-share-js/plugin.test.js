import assert from "node:assert/strict";
import { test } from "node:test";

import { Plugin } from "./plugin.js";
import { Admission } from "./sdk/index.js";
import { Bench, candidate } from "./sdk/testing.js";

/** @param {string} tenant */
const of = (tenant) => candidate({ keys: { tenant } });

test("a loud tenant does not starve a quiet one", () => {
  const bench = new Bench(new Plugin(), { maxBatch: 4, keys: ["tenant"] });
  const loud = [...Array(5).fill(of("loud")), of("quiet")];
  assert.deepEqual(bench.plan(loud)?.fire, [0, 5, 1, 2]);
  bench.done(loud.slice(0, 4));
  assert.deepEqual(bench.plan(loud)?.fire, [5, 0, 1, 2]);
});

test("a quiet tenant does not wait for a slot behind a loud one's", () => {
  const bench = new Bench(new Plugin(), { maxBatch: 4, keys: ["tenant"] });
  const waiting = [...Array(3).fill(of("loud")), ...Array(2).fill(of("quiet"))];
  bench.plan(waiting);
  bench.done(waiting.slice(0, 3));
  const { take, defer } = Admission;
  assert.deepEqual(bench.admit(waiting, [1, 1], []), [defer(), defer(), defer(), take(0), take(1)]);
  // Where there is room for more, the loud one has it.
  assert.deepEqual(bench.admit(waiting, [3], []), [take(0), defer(), defer(), take(0), take(0)]);
});

test("weights are shares", () => {
  const bench = new Bench(new Plugin(), { config: { weights: { gold: 3 } }, maxBatch: 4, keys: ["tenant"] });
  const candidates = [0, 1, 2, 3].flatMap(() => [of("gold"), of("free")]);
  assert.deepEqual(bench.plan(candidates)?.fire, [0, 1, 2, 4]);
  assert.throws(() => new Bench(new Plugin(), { config: { weights: { gold: 0 } } }), /weights.gold must be above 0/);
});

test("who came first goes first, of like turns", () => {
  const bench = new Bench(new Plugin(), { maxBatch: 3, keys: ["tenant"] });
  /** @type {(tenant: string, arrivalUs: number) => import("./sdk/testing.js").Candidate} */
  const came = (tenant, arrivalUs) => candidate({ keys: { tenant }, arrivalUs });
  assert.deepEqual(bench.plan([came("a", 30), came("b", 20), came("c", 10), came("c", 5)])?.fire, [3, 1, 0]);
});
