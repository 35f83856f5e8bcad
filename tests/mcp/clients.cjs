// The official clients of npm against docwharf, over HTTP and over standard input and output:
// `@modelcontextprotocol/client` with revision 2026-07-28 and with `initialize`, `@modelcontextprotocol/sdk` with
// `initialize`. They check structured content against the output schemas.
//
// usage: clients.cjs URL PROGRAM BUNDLE

const assert = require("node:assert/strict");
const modern = require("@modelcontextprotocol/client");
const modernStdio = require("@modelcontextprotocol/client/stdio");
const sdk = require("@modelcontextprotocol/sdk/client/index.js");
const sdkHttp = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const sdkStdio = require("@modelcontextprotocol/sdk/client/stdio.js");

const [url, program, bundle] = process.argv.slice(2);
const identity = { name: "docwharf-test", version: "1" };
const server = { command: program, args: ["mcp", "--in", bundle], stderr: "inherit" };

async function use(name, client, transport) {
    await client.connect(transport);
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map((tool) => tool.name).sort(), ["list_pages", "read_page", "search_docs"]);
    assert.ok(tools.every((tool) => tool.annotations.readOnlyHint && !tool.annotations.openWorldHint));
    const call = async (name, args) => {
        const result = await client.callTool({ name, arguments: args });
        assert.ok(!result.isError, JSON.stringify(result));
        assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent);
        return result.structuredContent;
    };
    let found;
    for (let attempt = 0; attempt < 600; attempt += 1) {
        found = await call("search_docs", { query: "index", limit: 3 });
        if (!found.indexing) break;
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
    assert.ok(found.results.length > 0 && found.results.length <= 3);
    const listed = await call("list_pages", { limit: 2 });
    const more = await call("list_pages", { limit: 2, cursor: listed.nextCursor });
    assert.notEqual(listed.pages[0].url, more.pages[0].url);
    const page = await call("read_page", { url: found.results[0].url });
    assert.ok(page.markdown.length > 0 && page.total >= page.markdown.length);
    const missing = await client.callTool({ name: "read_page", arguments: { url: "/no/such/page" } });
    assert.ok(missing.isError && missing.content[0].text.includes("list_pages"));
    await assert.rejects(client.callTool({ name: "no_such_tool", arguments: {} }));
    const { resources } = await client.listResources();
    const { contents } = await client.readResource({ uri: resources[0].uri });
    assert.equal(contents[0].mimeType, "text/markdown");
    await assert.rejects(client.readResource({ uri: "docwharf:///no/such/page" }));
    const { resourceTemplates } = await client.listResourceTemplates();
    assert.equal(resourceTemplates[0].uriTemplate, "docwharf:///{+path}");
    const version = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion ?? "initialize";
    await client.close();
    console.log(`${name}: ${version}`);
    return version;
}

async function main() {
    for (const connect of [
        () => new modern.StreamableHTTPClientTransport(new URL(url)),
        () => new modernStdio.StdioClientTransport(server),
    ]) {
        const pinned = new modern.Client(identity, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
        assert.equal(await use("client, pinned", pinned, connect()), "2026-07-28");
        const auto = new modern.Client(identity, { versionNegotiation: { mode: "auto" } });
        assert.equal(await use("client, auto", auto, connect()), "2026-07-28");
        const legacy = new modern.Client(identity, { versionNegotiation: { mode: "legacy" } });
        assert.equal(await use("client, legacy", legacy, connect()), "2025-11-25");
    }
    for (const connect of [
        () => new sdkHttp.StreamableHTTPClientTransport(new URL(url)),
        () => new sdkStdio.StdioClientTransport(server),
    ]) {
        await use("sdk", new sdk.Client(identity), connect());
    }
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
