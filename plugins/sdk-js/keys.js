// Keys of texts.

// The key of a text: the 64-bit FNV-1a of its UTF-8.
export function keyOf(text) {
  let key = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) key = BigInt.asUintN(64, (key ^ BigInt(byte)) * 0x100000001b3n);
  return key;
}
