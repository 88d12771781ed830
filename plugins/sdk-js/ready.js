// The candidates.

// Times and sizes are numbers; never is Infinity.
const NUMBERS = ["step", "arrivalUs", "readyUs", "deadlineUs", "inputBytes", "stateBytes"];
// As they come: handles and keys are 64 bits of no meaning, which a number would not hold.
const AS_THEY_ARE = ["sequence", "slot", "priority", "shapeKey", "startEnd", "rows"];

// The candidates, longest ready first: entry `i` of each column is of candidate `i`.
export class Ready {
  #columns;
  #model;
  #made = new Map();

  constructor(columns, model) {
    this.#columns = columns;
    this.#model = model;
  }

  get length() {
    return this.#columns.len;
  }

  // Every candidate, in the order in which they became ready.
  indices() {
    return Array.from({ length: this.length }, (_, i) => i);
  }

  // Candidates (all of them, if none are given), sorted by a column or by a function of the index; with equal keys, in the order given.
  sorted(key, of = this.indices()) {
    const keys = typeof key === "function" ? new Map(of.map((i) => [i, key(i)])) : undefined;
    const at = keys ? (i) => keys.get(i) : (i) => key[i];
    return of.slice().sort((a, b) => at(a) - at(b) || 0);
  }

  // A key feature of candidate `i`; 0n if the model has none of this name.
  key(feature, i) {
    return this.#feature("keys", this.#model.keys, feature, i, 0n);
  }

  // A numeric feature of candidate `i`; 0 if the model has none of this name.
  number(feature, i) {
    return this.#feature("numbers", this.#model.numbers, feature, i, 0);
  }

  // Of these, in this order, those that one batch can take: of the first one's shape, and no more rows than the round has.
  batch(order, round) {
    const { rows, shapeKey } = this.#columns;
    const taken = [];
    let left = round.maxBatch;
    let shape;
    for (const i of order) {
      const size = rows?.length ? rows[i] : 1;
      const of = shapeKey?.length ? shapeKey[i] : 0n;
      shape ??= of;
      if (of !== shape || (size > left && taken.length > 0)) continue;
      taken.push(i);
      left -= size;
      if (left <= 0) break;
    }
    return taken;
  }

  #feature(column, names, feature, i, missing) {
    const at = names.indexOf(feature);
    return at < 0 ? missing : this.#asked(column)[i * names.length + at];
  }

  #asked(name) {
    const column = this.#columns[name] ?? [];
    if (column.length === 0 && this.length > 0) {
      const asked = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
      throw new Error(`the server was not asked for this column; add "${asked}" to \`columns\` of plugin.toml`);
    }
    return column;
  }

  column(name) {
    if (!this.#made.has(name)) {
      const column = this.#asked(name);
      this.#made.set(name, NUMBERS.includes(name) ? numbers(column) : column);
    }
    return this.#made.get(name);
  }
}

// 64 bits as numbers, half by half: a bigint for each would be garbage.
function numbers(column) {
  const halves = new Uint32Array(column.buffer, column.byteOffset, 2 * column.length);
  const made = new Float64Array(column.length);
  for (let i = 0; i < made.length; i++) {
    const low = halves[2 * i];
    const high = halves[2 * i + 1];
    made[i] = high === 0xffffffff && low === 0xffffffff ? Infinity : high * 4294967296 + low;
  }
  return made;
}

for (const name of [...NUMBERS, ...AS_THEY_ARE]) {
  Object.defineProperty(Ready.prototype, name, {
    get() {
      return this.column(name);
    },
  });
}
