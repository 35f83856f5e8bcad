export default `High water of edition ${process.env.EDITION}`;
