// The columns and methods of candidates that the types promise are there: the compiler does not see what is defined at run time.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Ready } from "../sdk-js/ready.js";

test("candidates have what their type says, and nothing else", () => {
  const types = readFileSync(new URL("../sdk-js/index.d.ts", import.meta.url), "utf8");
  const [, body] = types.match(/interface Ready \{\n(.*?)\n\}/s);
  const said = [...body.matchAll(/^  (?:readonly )?(\w+)[:(]/gm)].map(([, name]) => name);
  const made = Object.getOwnPropertyNames(Ready.prototype).filter((name) => !["constructor", "column"].includes(name));
  assert.ok(said.length > 15);
  assert.deepEqual(said.sort(), made.sort());
});
