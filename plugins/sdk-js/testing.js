// Drives a plug-in under Node: candidates made by hand, and the server's rules for answers.
import { ENDINGS } from "./events.js";
import { Glue } from "./glue.js";
import { remember } from "./host.js";
import { manifestOf, parse } from "./manifest.js";

const NEVER = 2n ** 64n - 1n;
const WIDE = {
  step: [1, BigUint64Array], arrivalUs: [0, BigUint64Array], readyUs: [0, BigUint64Array], deadlineUs: [Infinity, BigUint64Array],
  shapeKey: [0, BigUint64Array], inputBytes: [0, BigUint64Array], stateBytes: [0, BigUint64Array],
  slot: [2 ** 32 - 1, Uint32Array], priority: [0, Uint32Array], startEnd: [0, Uint8Array], rows: [1, Uint32Array],
};

// One candidate: candidate({ deadlineUs: 5, keys: { tenant: "gold" } }). Every column has a value.
export function candidate({ keys = {}, numbers = {}, ...columns } = {}) {
  const unknown = Object.keys(columns).filter((name) => !(name in WIDE) && name !== "sequence");
  if (unknown.length) throw new TypeError(`no such column: ${unknown.join(", ")}`);
  const remembered = Object.entries(keys).map(([name, text]) => [name, remember(text)]);
  return { given: columns, keys: Object.fromEntries(remembered), numbers };
}

// A plug-in under test: new Bench(new Plugin(), { maxBatch: 4, keys: ["tenant"] }).plan([candidate(), ...]).
//
// It has the hooks, columns and defaults of the plugin.toml in the current folder: a column that the file does not name is missing, as in the server.
// `manifest` is a text in its place. `round` is the state of the load for the next question; `round.nowUs` is the clock.
export class Bench {
  constructor(plugin, { config = {}, maxBatch = 8, keys = [], numbers = [], manifest } = {}) {
    this.glue = new Glue(plugin);
    this.manifest = manifest === undefined ? manifestOf(process.cwd()) : parse(manifest);
    this.model = { name: "model", version: 1n, strategy: "oldest", maxBatch, instances: 1, slots: 64, keys, numbers };
    this.round = { nowUs: 0, runUs: 0, instance: 0, maxBatch, freeInstances: 1, live: 0, backlog: 0, notShown: 0 };
    const settings = Object.entries(this.manifest.config).filter(([, setting]) => "default" in setting);
    const defaults = Object.fromEntries(settings.map(([name, setting]) => [name, setting.default]));
    this.glue.configure(JSON.stringify({ ...defaults, ...config }), this.model);
  }

  // Asks for a plan. An answer that breaks a rule of the server is an error. Undefined: the plug-in left the round to the built-in policy.
  plan(candidates) {
    this.#wants("plan");
    const said = this.glue.plan(this.round, this.#shown(candidates));
    // The server knows shapes and rows even if the plug-in does not see them.
    if (said) check(said, this.#columns(candidates), this.round);
    return said;
  }

  // Asks who gets a slot.
  admit(waiting, room, victims) {
    this.#wants("admit");
    return this.glue.admit(this.round, this.#shown(waiting), Uint32Array.from(room), this.#shown(victims));
  }

  // Advances the clock.
  waitUs(micros) {
    this.round.nowUs += micros;
  }

  // The sequences of these requests began.
  began(starts) {
    this.#report(1, starts, ({ given }) => (given.step ?? 1) - 1);
  }

  // Their sequences got slots, after this time in the backlog.
  slotted(starts, waitedUs) {
    this.#report(2, starts, () => waitedUs);
  }

  // These requests ran.
  done(candidates) {
    this.#report(3, candidates, ({ given }) => given.rows ?? 1);
  }

  // These requests failed.
  failed(candidates) {
    this.#report(4, candidates, ({ given }) => given.rows ?? 1);
  }

  // The sequences of these STARTs ended; `why` is a name as of event.why.
  ended(starts, why) {
    this.#report(5, starts, () => ENDINGS.indexOf(why));
  }

  // A batch ran for this long.
  batchRan(micros) {
    this.#report(6, [candidate({ sequence: 0 })], () => micros);
  }

  #report(kind, of, amount) {
    if (!this.#has("wants", "observe") && !this.#has("wants", "on-event")) return;
    const { sequence, keys } = this.#columns(of);
    if (kind === 2 || kind === 6) keys.fill(0n);
    this.glue.observe({ kind: new Uint32Array(of.length).fill(kind), sequence, amount: BigUint64Array.from(of, (one) => BigInt(amount(one))), keys });
  }

  #wants(hook) {
    if (!this.#has("wants", hook)) throw new Error(`the server does not ask for a ${hook}; add "${hook}" to \`wants\` of plugin.toml`);
  }

  #has(list, name) {
    return this.manifest[list]?.includes(name) ?? true;
  }

  // The columns that the server fills.
  #shown(candidates) {
    const columns = this.#columns(candidates);
    const name = (column) => column.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    const shown = Object.entries(columns).filter(([column]) => column === "len" || this.#has("columns", name(column)));
    return Object.fromEntries(shown);
  }

  #columns(candidates) {
    const columns = { len: candidates.length };
    for (const [name, [missing, List]] of Object.entries(WIDE)) {
      const cast = (value) => (List !== BigUint64Array ? value : value === Infinity ? NEVER : BigInt(value));
      columns[name] = List.from(candidates, ({ given }) => cast(given[name] ?? missing));
    }
    columns.sequence = BigUint64Array.from(candidates, ({ given }, n) => BigInt(given.sequence ?? n + 1));
    columns.keys = BigUint64Array.from(candidates.flatMap((one) => this.model.keys.map((name) => one.keys[name] ?? 0n)));
    columns.numbers = Float64Array.from(candidates.flatMap((one) => this.model.numbers.map((name) => one.numbers[name] ?? 0)));
    return columns;
  }
}

function check({ fire, reject }, columns, round) {
  const picks = [...fire, ...reject.map((rejection) => rejection.candidate)];
  for (const i of picks) if (!Number.isInteger(i) || i < 0 || i >= columns.len) throw new Error(`index ${i} of ${columns.len} candidates`);
  if (new Set(picks).size < picks.length) throw new Error(`a candidate twice: ${picks}`);
  const rows = fire.reduce((sum, i) => sum + columns.rows[i], 0);
  if (rows > round.maxBatch && fire.length > 1) throw new Error(`${rows} rows in a batch of at most ${round.maxBatch}`);
  if (new Set(fire.map((i) => columns.shapeKey[i])).size > 1) throw new Error("unlike shapes in one batch");
}
