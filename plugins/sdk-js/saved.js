// States that a plug-in saves, as JSON. Maps and bigints come back as they were.

// Makes the bytes for `save` of a value.
export function saved(state) {
  const plain = (_, value) => {
    if (value instanceof Map) return { $map: [...value] };
    return typeof value === "bigint" ? { $bigint: String(value) } : value;
  };
  return new TextEncoder().encode(JSON.stringify(state, plain));
}

// Reads what `saved` made.
export function restored(bytes) {
  return JSON.parse(new TextDecoder().decode(bytes), (_, value) => {
    if (value?.$map) return new Map(value.$map);
    return value?.$bigint === undefined ? value : BigInt(value.$bigint);
  });
}
