// The bench of the kit for JavaScript: plugin.toml, clock, events, and what a plug-in saves.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Plan, Scheduler, host, restored, saved } from "../sdk-js/index.js";
import { parse } from "../sdk-js/manifest.js";
import { Bench, candidate } from "../sdk-js/testing.js";

// Counts events, and fires by deadline once 5 µs have passed.
class Counts extends Scheduler {
  seen = [];

  configure(config) {
    if (config.burst === undefined) throw new Error("burst is not configured");
    this.burst = config.burst;
  }

  plan(round, ready) {
    if (round.nowUs < 5) return Plan.waitUs(this.burst);
    return Plan.fire(ready.sorted((i) => ready.deadlineUs[i]).slice(0, 1)).shed(1, 7);
  }

  observe(event) {
    this.seen.push([event.kind, event.amount, event.why, event.key("tenant") !== 0n]);
  }
}

const manifest = `wants = ["plan", "observe"]
columns = [
  "deadline-us",   # the only one
]
[config.burst]
type = "integer"
default = 4
`;

test("clock, defaults and every event can be driven", () => {
  const plugin = new Counts();
  const bench = new Bench(plugin, { keys: ["tenant"], manifest });
  const two = [candidate({ keys: { tenant: "gold" }, deadlineUs: 1 }), candidate()];
  assert.equal(bench.plan(two).wakeUs, 4n);
  bench.waitUs(5);
  const { fire, reject } = bench.plan(two);
  assert.deepEqual([fire, reject], [[0], [{ candidate: 1, code: 7, ends: false }]]);
  const one = two.slice(0, 1);
  bench.began(one);
  bench.slotted(one, 8);
  bench.done(one);
  bench.failed(one);
  bench.batchRan(900);
  bench.ended(one, "idle");
  assert.deepEqual(plugin.seen, [
    ["began", 0, undefined, true], ["slotted", 8, undefined, false], ["done", 1, undefined, true], ["failed", 1, undefined, true],
    ["batchRan", 900, undefined, false], ["ended", 2, "idle", true],
  ]);
});

test("what is missing in the file is missing in the test", () => {
  const bench = new Bench(new Counts(), { manifest: manifest.replace("deadline-us", "rows") });
  bench.waitUs(5);
  assert.throws(() => bench.plan([candidate(), candidate()]), /add "deadline-us" to `columns`/);
  assert.throws(() => bench.admit([candidate()], [1], []), /add "admit" to `wants`/);
  assert.throws(() => new Bench(new Counts(), { manifest: 'wants = ["plan"]' }), /burst is not configured/);
});

test("states and counters", () => {
  const state = { had: new Map([[7n, 1.5]]), list: [1n, "x", null] };
  assert.deepEqual(restored(saved(state)), state);
  host.metricAdd("shed", 2, { tenant: "gold" });
  assert.equal(host.counters['shed{tenant="gold"}'], 2);
});

test("a plugin.toml is read as far as a test needs it", () => {
  const read = parse('name = "a # b"  # c\nwindow = 1_000\n[config.weights]\ndefault = { gold = 2.5, "x y" = [1, 2,] }\n');
  assert.deepEqual(read, { name: "a # b", window: 1000, config: { weights: { default: { gold: 2.5, "x y": [1, 2] } } } });
  assert.throws(() => parse("what"), /plugin.toml:1: what/);
});
