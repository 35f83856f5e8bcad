export default function Page() {
  return <h1>Start</h1>;
}
