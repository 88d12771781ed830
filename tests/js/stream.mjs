// A client of the WebSocket `/v2/models/M/stream`, with nothing but what browsers (and Node) bring along. `check` gives every answer that
// is not as it should be, and how many were looked at.

const MODEL = "accumulator_int32";

/** A socket whose messages can be awaited one after the other. */
class Stream {
  constructor(address, model = MODEL) {
    this.socket = new WebSocket(`ws://${address}/v2/models/${model}/stream`);
    this.socket.binaryType = "arraybuffer";
    this.messages = [];
    this.waiting = [];
    this.socket.onmessage = (event) => (this.waiting.shift() ?? ((m) => this.messages.push(m)))(event.data);
    this.closed = new Promise((resolve) => (this.socket.onclose = resolve));
    this.opened = new Promise((resolve) => {
      this.socket.onopen = () => resolve(true);
      this.socket.onerror = () => resolve(false);
    });
  }

  async next() {
    return this.messages.length > 0 ? this.messages.shift() : new Promise((resolve) => this.waiting.push(resolve));
  }

  async json() {
    return JSON.parse(await this.next());
  }
}

function step(id, sequence, value, flags = {}) {
  const parameters = { sequence_id: sequence, ...flags };
  const inputs = [{ name: "INPUT", shape: [1, 1], datatype: "INT32", data: [value] }];
  return JSON.stringify({ id, parameters, inputs, outputs: [{ name: "OUTPUT" }] });
}

/** The length of the JSON, the JSON, and one INT32. */
function binary(id, sequence, value, flags = {}) {
  const parameters = { sequence_id: sequence, binary_data_output: true, ...flags };
  const inputs = [{ name: "INPUT", shape: [1, 1], datatype: "INT32", parameters: { binary_data_size: 4 } }];
  const json = new TextEncoder().encode(JSON.stringify({ id, parameters, inputs, outputs: [{ name: "OUTPUT" }] }));
  const message = new Uint8Array(4 + json.length + 4);
  const view = new DataView(message.buffer);
  view.setUint32(0, json.length, true);
  message.set(json, 4);
  view.setInt32(4 + json.length, value, true);
  return message;
}

function unpack(message) {
  const view = new DataView(message);
  const length = view.getUint32(0, true);
  const json = JSON.parse(new TextDecoder().decode(new Uint8Array(message, 4, length)));
  return [json.id, view.getInt32(4 + length, true)];
}

export async function check(address) {
  const wrong = [];
  let count = 0;
  const same = (what, got, want) => {
    count += 1;
    if (JSON.stringify(got) !== JSON.stringify(want)) wrong.push(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  };

  // Steps of eight sequences, sent ahead; answers come in the order of the requests, each with its own sum.
  const stream = new Stream(address);
  same("opened", await stream.opened, true);
  const asked = [];
  const sums = {};
  for (let n = 0; n < 20; n++) {
    for (let sequence = 9101; sequence < 9109; sequence++) {
      const value = n * (sequence - 9100) - 7;
      sums[sequence] = (sums[sequence] ?? 0) + value;
      stream.socket.send(step(`${sequence}/${n}`, sequence, value, { sequence_start: n === 0, sequence_end: n === 19 }));
      asked.push([`${sequence}/${n}`, sums[sequence]]);
    }
  }
  for (const [id, sum] of asked) {
    const answer = await stream.json();
    same(id, [answer.id, answer.outputs?.[0].data, answer.error], [id, [sum], undefined]);
  }

  // Bytes, with a text id.
  let sum = 0;
  for (let n = 0; n < 20; n++) {
    stream.socket.send(binary(`b${n}`, "a browser's", 2 ** 26 + n, { sequence_start: n === 0 }));
    sum += 2 ** 26 + n;
  }
  const integers_only = await stream.json();
  same("a text id", [integers_only.id, integers_only.reason], ["b0", "bad_input"]);
  for (let n = 1; n < 20; n++) await stream.json();
  sum = 0;
  for (let n = 0; n < 20; n++) stream.socket.send(binary(`b${n}`, 9110, 2 ** 26 + n, { sequence_start: n === 0, sequence_end: n === 19 }));
  for (let n = 0; n < 20; n++) {
    sum += 2 ** 26 + n;
    same(`bytes ${n}`, unpack(await stream.next()), [`b${n}`, sum]);
  }

  // An error is an answer, and what comes after it is answered.
  stream.socket.send(step("no start", 9120, 1));
  stream.socket.send("{");
  stream.socket.send(step("good", 9120, 5, { sequence_start: true }));
  const refused = await stream.json();
  same("no start", [refused.id, refused.reason], ["no start", "never_started"]);
  same("its sentence", refused.error?.includes("must specify the START flag on the first request of the sequence"), true);
  same("no JSON", (await stream.json()).reason, "bad_input");
  same("good", (await stream.json()).outputs?.[0].data, [5]);

  // The sequence outlives its socket.
  stream.socket.close();
  await stream.closed;
  const again = new Stream(address);
  await again.opened;
  again.socket.send(step("on", 9120, 6, { sequence_end: true }));
  same("another socket", (await again.json()).outputs?.[0].data, [11]);
  again.socket.close();

  const none = new Stream(address, "nope");
  same("an unknown model", await none.opened, false);
  return { count, wrong };
}
