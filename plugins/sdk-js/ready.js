// The candidates.

const NEVER = 2n ** 64n - 1n;

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
      const size = rows.length ? rows[i] : 1;
      const of = shapeKey.length ? shapeKey[i] : 0n;
      shape ??= of;
      if (of === shape && left > 0 && (size <= left || taken.length === 0)) {
        taken.push(i);
        left -= Math.min(size, left);
      }
    }
    return taken;
  }

  #feature(column, names, feature, i, missing) {
    const at = names.indexOf(feature);
    return at < 0 ? missing : this.#asked(column)[i * names.length + at];
  }

  #asked(name) {
    const column = this.#columns[name];
    if (column.length === 0 && this.length > 0) {
      const asked = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
      throw new Error(`the server was not asked for this column; add "${asked}" to \`columns\` of plugin.toml`);
    }
    return column;
  }

  column(name) {
    if (!this.#made.has(name)) {
      const column = this.#asked(name);
      const number = (value) => (value === NEVER ? Infinity : Number(value));
      this.#made.set(name, NUMBERS.includes(name) ? Float64Array.from(column, number) : column);
    }
    return this.#made.get(name);
  }
}

for (const name of [...NUMBERS, ...AS_THEY_ARE]) {
  Object.defineProperty(Ready.prototype, name, {
    get() {
      return this.column(name);
    },
  });
}
