// Drives a plug-in under Node: candidates by hand, answers held against the rules that the server holds them against.
import { Glue } from "./glue.js";
import { remember } from "./host.js";

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

// A plug-in on the bench: new Bench(new Plugin(), { maxBatch: 4, keys: ["tenant"] }).plan([candidate(), ...]).
export class Bench {
  constructor(plugin, { config = {}, maxBatch = 8, keys = [], numbers = [] } = {}) {
    this.glue = new Glue(plugin);
    this.model = { name: "model", version: 1n, strategy: "oldest", maxBatch, instances: 1, slots: 64, keys, numbers };
    this.round = { nowUs: 0, instance: 0, maxBatch, freeInstances: 1, live: 0, backlog: 0, notShown: 0 };
    this.glue.configure(JSON.stringify(config), this.model);
  }

  // Asks; an answer that breaks a rule of the server is an error. Undefined: it left the round to the server.
  plan(candidates) {
    const columns = this.#columns(candidates);
    const said = this.glue.plan(this.round, columns);
    if (said) check(said, columns, this.round);
    return said;
  }

  admit(waiting, room, victims) {
    return this.glue.admit(this.round, this.#columns(waiting), Uint32Array.from(room), this.#columns(victims));
  }

  // Says that these requests ran.
  done(candidates) {
    const { sequence, rows, keys } = this.#columns(candidates);
    const amount = BigUint64Array.from(rows, BigInt);
    this.glue.observe({ kind: new Uint32Array(candidates.length).fill(3), sequence, amount, keys });
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
  const picks = [...fire, ...reject];
  for (const i of picks) if (!Number.isInteger(i) || i < 0 || i >= columns.len) throw new Error(`index ${i} of ${columns.len} candidates`);
  if (new Set(picks).size < picks.length) throw new Error(`a candidate twice: ${picks}`);
  const rows = fire.reduce((sum, i) => sum + columns.rows[i], 0);
  if (rows > round.maxBatch && fire.length > 1) throw new Error(`${rows} rows in a batch of at most ${round.maxBatch}`);
  if (new Set(fire.map((i) => columns.shapeKey[i])).size > 1) throw new Error("unlike shapes in one batch");
}
