export default function Page() {
  return <h1>Guides</h1>;
}
