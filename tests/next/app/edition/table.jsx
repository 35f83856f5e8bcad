'use client';

import { useState } from 'react';

// The rows are a chunk of their own, which is asked for when somebody wants to see them: perhaps long after the page has
// been loaded, and after its version was replaced.
export default function Table() {
  const [rows, setRows] = useState(null);
  const show = async () => setRows((await import('./rows')).default);
  return rows ? <p id="rows">{rows}</p> : <button onClick={show}>Show the table</button>;
}
