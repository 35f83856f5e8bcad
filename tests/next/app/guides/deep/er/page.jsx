export default function Page() {
  return <h1>Deeper</h1>;
}
