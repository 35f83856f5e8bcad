export const dynamicParams = false;

export function generateStaticParams() {
  return [{ slug: 'one' }, { slug: 'two' }];
}

export default async function Page({ params }) {
  const { slug } = await params;
  return <h1>{slug === 'one' ? 'One' : 'Two'}</h1>;
}
