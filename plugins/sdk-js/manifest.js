// Reads as much of a plugin.toml as a test needs: `wants`, `columns`, and the defaults of settings.
import { existsSync, readFileSync } from "node:fs";

// The plugin.toml of a folder; without one the server asks for everything.
export function manifestOf(folder) {
  const file = `${folder}/plugin.toml`;
  return existsSync(file) ? parse(readFileSync(file, "utf8")) : { config: {} };
}

// Tables, and keys with a value on one line or an array over several. Anything else is an error.
export function parse(text) {
  const manifest = { config: {} };
  let table = manifest;
  const lines = text.split("\n");
  for (let n = 0; n < lines.length; n++) {
    let line = withoutComment(lines[n]).trim();
    if (!line) continue;
    const header = line.match(/^\[([^[\]]+)\]$/);
    if (header) {
      table = header[1].split(".").reduce((of, key) => (of[key.trim().replace(/^"(.*)"$/, "$1")] ??= {}), manifest);
      continue;
    }
    const pair = line.match(/^([A-Za-z0-9_-]+)\s*=\s*(.*)$/);
    if (!pair) throw new Error(`plugin.toml:${n + 1}: ${line}`);
    let value = pair[2];
    while (value.startsWith("[") && !closed(value) && n + 1 < lines.length) value += ` ${withoutComment(lines[++n]).trim()}`;
    table[pair[1]] = valueOf(value, n + 1);
  }
  return manifest;
}

function withoutComment(line) {
  const quoted = line.match(/^(?:[^"#]|"(?:[^"\\]|\\.)*")*/);
  return quoted ? quoted[0] : line;
}

function closed(value) {
  const bare = value.replace(/"(?:[^"\\]|\\.)*"/g, "");
  return bare.split("[").length === bare.split("]").length;
}

// Values of TOML that JSON writes alike, and inline tables.
function valueOf(text, line) {
  const json = text
    .replace(/("(?:[^"\\]|\\.)*")|,(\s*[\]}])/g, (_, string, end) => string ?? end)
    .replace(/("(?:[^"\\]|\\.)*"|[A-Za-z0-9_-]+)\s*=\s*|("(?:[^"\\]|\\.)*")/g, (_, key, string) => string ?? `"${key.replaceAll('"', "")}":`)
    .replace(/("(?:[^"\\]|\\.)*")|(\d)_(?=\d)/g, (_, string, digit) => string ?? digit);
  try {
    return JSON.parse(json);
  } catch {
    throw new Error(`plugin.toml:${line}: ${text}`);
  }
}
