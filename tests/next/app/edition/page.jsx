import Table from './table';

export default function Page() {
  return (
    <>
      <h1>Edition</h1>
      <Table />
    </>
  );
}
