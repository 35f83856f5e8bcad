// SERVER=1 is for `next start`; without it the site is exported. SLASH=1 writes folders, as `trailingSlash` does; BASE is where the site begins. EDITION tells two versions apart.
export default {
  output: process.env.SERVER === '1' ? undefined : 'export',
  trailingSlash: process.env.SLASH === '1',
  basePath: process.env.BASE || undefined,
  env: { EDITION: process.env.EDITION },
};
