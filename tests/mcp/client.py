"""The official client of PyPI (`mcp`) against docwharf: over HTTP and over standard input and output, both with and
without `initialize`.

usage: client.py URL PROGRAM BUNDLE
"""

import asyncio
import json
import sys

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def use(connect, mode, version):
    async with Client(connect(), mode=mode) as client:
        assert client.protocol_version == version, client.protocol_version
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert sorted(tools) == ["list_pages", "read_page", "search_docs"], tools
        assert all(tool.annotations.read_only_hint for tool in tools.values())
        for _ in range(600):
            found = await client.call_tool("search_docs", {"query": "index", "limit": 3})
            assert not found.is_error, found
            if not found.structured_content["indexing"]:
                break
            await asyncio.sleep(0.1)
        assert found.structured_content["results"], found
        assert json.loads(found.content[0].text) == found.structured_content
        listed = await client.call_tool("list_pages", {"limit": 2})
        pages = listed.structured_content["pages"]
        more = await client.call_tool("list_pages", {"limit": 2, "cursor": listed.structured_content["nextCursor"]})
        assert more.structured_content["pages"][0] not in pages
        page = await client.call_tool("read_page", {"url": pages[0]["url"]})
        assert page.structured_content["markdown"], page
        missing = await client.call_tool("read_page", {"url": "/no/such/page"})
        assert missing.is_error and "list_pages" in missing.content[0].text, missing
        resources = (await client.list_resources()).resources
        contents = (await client.read_resource(str(resources[0].uri))).contents
        assert contents[0].mime_type == "text/markdown" and contents[0].text
        templates = (await client.list_resource_templates()).resource_templates
        assert templates[0].uri_template == "docwharf:///{+path}"
    print(f"python, {mode}: {version}")


async def main():
    url, program, bundle = sys.argv[1:]
    stdio = StdioServerParameters(command=program, args=["mcp", "--in", bundle])
    for connect in (lambda: url, lambda: stdio_client(stdio)):
        await use(connect, "auto", "2026-07-28")
        await use(connect, "legacy", "2025-11-25")


asyncio.run(main())
