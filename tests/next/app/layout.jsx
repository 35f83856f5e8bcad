import Link from 'next/link';
import './site.css';

export const metadata = { title: 'Tides' };

const PAGES = [['/', 'Home'], ['/guides', 'Guides'], ['/guides/start', 'Start'], ['/guides/deep/er', 'Deeper'],
  ['/api/one', 'One'], ['/api/two', 'Two'], ['/edition', 'Edition']];

export default function Layout({ children }) {
  return (
    <html lang="en">
      <body>
        <nav>{PAGES.map(([href, name]) => <Link key={href} href={href}>{name}</Link>)}</nav>
        <main>{children}</main>
        <footer>edition {process.env.EDITION}</footer>
      </body>
    </html>
  );
}
