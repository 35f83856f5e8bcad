//! Answers the messages of the protocol.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::ErrorData;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, DiscoverResult, ErrorCode, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer};
use serde_json::{Map, Value, json};

use docwharf_site::sealed_version::SealedVersion;

use super::arguments::{ListPagesArguments, ReadPageArguments, SearchDocsArguments};
use super::site_reader::{SiteReader, ToolAnswer};
use super::tools::{INSTRUCTIONS, ToolName, page_template};
use crate::mcp_statistics::{McpOperation, McpOutcome};
use crate::named_host::HostAndPort;
use crate::search::{MissingIndex, SearchFailure, SearchParameters, SearchQuery};
use crate::site::Site;

/// The versions of the protocol that are answered, oldest first.
pub(super) const SUPPORTED_VERSIONS: &[ProtocolVersion] = &[
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2026_07_28,
];
/// The methods that are answered. A request for one of them with parameters of another form is no unknown method.
const KNOWN_METHODS: [&str; 8] = [
    "initialize",
    "server/discover",
    "ping",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/read",
    "resources/templates/list",
];
/// The time for which a client may use a list or a page again, in milliseconds. The next version may have others.
const CACHE_TTL_MS: u64 = 60_000;
/// Interval between checks whether the search index is there.
const INDEX_POLL_INTERVAL: Duration = Duration::from_millis(25);

/// An MCP server for one version of a site.
#[derive(Debug, Clone)]
pub struct McpServer {
    reader: Arc<SiteReader>,
    /// The longest time that a search waits for the first index of the site.
    index_timeout: Duration,
}

impl McpServer {
    /// Creates a server for a version that `site` serves. A search waits up to `index_timeout` for the first index.
    pub fn new(site: Arc<Site>, version: Arc<SealedVersion>, index_timeout: Duration) -> McpServer {
        McpServer { reader: Arc::new(SiteReader::new(site, version, None)), index_timeout }
    }

    /// Creates a server that answers one request, which names this host.
    pub(crate) fn for_request(site: Arc<Site>, version: Arc<SealedVersion>, host: Option<HostAndPort>) -> McpServer {
        McpServer { reader: Arc::new(SiteReader::new(site, version, host)), index_timeout: Duration::ZERO }
    }

    fn site(&self) -> &Arc<Site> {
        &self.reader.site
    }

    /// Returns whether a tool is listed. Without the search, `search_docs` is not.
    fn offers(&self, tool: ToolName) -> bool {
        tool != ToolName::SearchDocs || self.site().search.is_enabled()
    }

    async fn run_tool(&self, tool: ToolName, arguments: Map<String, Value>) -> ToolAnswer {
        let answer = match tool {
            ToolName::SearchDocs => match SearchDocsArguments::read(arguments) {
                Ok(arguments) => self.search_docs(arguments).await,
                Err(advice) => Ok(ToolAnswer::advice(advice, McpOutcome::Advice)),
            },
            ToolName::ReadPage => match ReadPageArguments::read(arguments) {
                Ok(arguments) => self.run_job(move |reader| reader.read_page(&arguments)).await,
                Err(advice) => Ok(ToolAnswer::advice(advice, McpOutcome::Advice)),
            },
            ToolName::ListPages => match ListPagesArguments::read(arguments) {
                Ok(arguments) => self.run_job(move |reader| reader.list_pages(&arguments)).await,
                Err(advice) => Ok(ToolAnswer::advice(advice, McpOutcome::Advice)),
            },
        };
        answer.unwrap_or_else(|failure| match failure {
            SearchFailure::Busy => ToolAnswer::advice("the server is busy; call again in a second", McpOutcome::Busy),
            SearchFailure::Failed => ToolAnswer::advice(
                "the server cannot read this; its log has the reason. Call another tool",
                McpOutcome::Failed,
            ),
        })
    }

    async fn search_docs(&self, arguments: SearchDocsArguments) -> Result<ToolAnswer, SearchFailure> {
        let search = &self.site().search;
        let Some(settings) = search.settings() else {
            return Ok(ToolAnswer::advice("the search of this site is off; call list_pages", McpOutcome::Advice));
        };
        let deadline = Instant::now() + self.index_timeout;
        let index = loop {
            match search.require_index() {
                Ok(index) => break index,
                Err(MissingIndex::Failed) => {
                    let advice = "the site has no search index, because its build has failed; call list_pages";
                    return Ok(ToolAnswer::advice(advice, McpOutcome::Failed));
                }
                Err(MissingIndex::Building) if Instant::now() >= deadline => {
                    return Ok(ToolAnswer::value(json!({ "results": [], "indexing": true }), McpOutcome::Indexing));
                }
                Err(MissingIndex::Building) => tokio::time::sleep(INDEX_POLL_INTERVAL).await,
            }
        };
        let parameters = SearchParameters {
            text: arguments.query,
            limit: arguments.limit,
            section: arguments.section,
            lang: arguments.lang,
            ..SearchParameters::default()
        };
        let (version, addresses) = (Arc::clone(&self.reader.version), self.reader.addresses.clone());
        let query = SearchQuery::for_assistants(parameters, index, version, addresses, &settings.settings);
        search.submit_with(search.parallel(), query, SiteReader::format_results).wait().await
    }

    /// Runs a job on a thread of queries.
    async fn run_job<T: Send + 'static>(
        &self,
        job: impl FnOnce(&SiteReader) -> T + Send + 'static,
    ) -> Result<T, SearchFailure> {
        let (search, reader) = (&self.site().search, Arc::clone(&self.reader));
        search.submit_job(search.parallel(), move || job(&reader)).wait().await
    }

    /// Runs a job for a request for resources, and counts its outcome.
    async fn run_resource_job<T: Send + 'static>(
        &self,
        operation: McpOperation,
        job: impl FnOnce(&SiteReader) -> Result<T, ErrorData> + Send + 'static,
    ) -> Result<T, ErrorData> {
        let (outcome, result) = match self.run_job(job).await {
            Ok(Ok(value)) => (McpOutcome::Ok, Ok(value)),
            Ok(Err(error)) if error.code == ErrorCode::INTERNAL_ERROR => (McpOutcome::Failed, Err(error)),
            Ok(Err(error)) => (McpOutcome::Advice, Err(error)),
            Err(SearchFailure::Busy) => {
                let error = ErrorData::internal_error("the server is busy; try again in a second", None);
                (McpOutcome::Busy, Err(error))
            }
            Err(SearchFailure::Failed) => {
                let error =
                    ErrorData::internal_error("the page cannot be read; the log of the server has the reason", None);
                (McpOutcome::Failed, Err(error))
            }
        };
        self.site().mcp.count(operation, outcome);
        result
    }

    /// Returns the tool of a call whose arguments are not a JSON object, which rmcp does not recognise as a call.
    fn find_tool_with_wrong_arguments(&self, request: &CustomRequest) -> Option<ToolName> {
        let params = request.params.as_ref().filter(|_| request.method == "tools/call")?;
        params.get("arguments").filter(|arguments| !arguments.is_object())?;
        ToolName::parse(params.get("name")?.as_str()?).filter(|tool| self.offers(*tool))
    }

    fn count_other(&self) {
        self.site().mcp.count(McpOperation::Other, McpOutcome::Ok);
    }
}

/// Returns whether the client uses the version in which results have a type, and say how long they may be stored.
fn is_of_2026_07_28(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let implementation = Implementation::new("docwharf", env!("CARGO_PKG_VERSION")).with_title("docwharf");
        ServerConfig::new(capabilities)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
            .with_server_info(implementation)
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(SUPPORTED_VERSIONS)
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        self.count_other();
        let result = DiscoverResult::from_server_info(SUPPORTED_VERSIONS.to_vec(), self.get_info());
        Ok(result.with_ttl_ms(CACHE_TTL_MS).with_cache_scope(self.reader.cache_scope()))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        refuse_cursor(request)?;
        self.count_other();
        let tools = ToolName::ALL.into_iter().filter(|tool| self.offers(*tool)).map(ToolName::definition);
        let mut result = ListToolsResult::with_all_items(tools.collect());
        if is_of_2026_07_28(&context) {
            result = result.with_ttl_ms(CACHE_TTL_MS).with_cache_scope(self.reader.cache_scope());
        }
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        ToolName::parse(name).filter(|tool| self.offers(*tool)).map(ToolName::definition)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = ToolName::parse(&request.name).filter(|tool| self.offers(*tool)) else {
            self.site().mcp.count(McpOperation::Other, McpOutcome::Advice);
            return Err(ErrorData::invalid_params("there is no such tool; list the tools with tools/list", None));
        };
        let answer = self.run_tool(tool, request.arguments.unwrap_or_default()).await;
        self.site().mcp.count(tool.operation(), answer.outcome);
        Ok(answer.result.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let job = move |reader: &SiteReader| reader.list_resources(cursor.as_deref());
        let (resources, next_cursor) = self.run_resource_job(McpOperation::ListResources, job).await?;
        let mut result = ListResourcesResult::with_all_items(resources);
        result.next_cursor = next_cursor;
        if is_of_2026_07_28(&context) {
            result = result.with_ttl_ms(CACHE_TTL_MS).with_cache_scope(self.reader.cache_scope());
        }
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        refuse_cursor(request)?;
        self.count_other();
        let mut result = ListResourceTemplatesResult::with_all_items(vec![page_template()]);
        if is_of_2026_07_28(&context) {
            result = result.with_ttl_ms(CACHE_TTL_MS).with_cache_scope(self.reader.cache_scope());
        }
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let job = move |reader: &SiteReader| reader.read_resource(&request.uri);
        let contents = self.run_resource_job(McpOperation::ReadResource, job).await?;
        let mut result = ReadResourceResult::new(vec![contents]);
        if is_of_2026_07_28(&context) {
            result = result.with_ttl_ms(CACHE_TTL_MS).with_cache_scope(self.reader.cache_scope());
        }
        Ok(result.into())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if let Some(tool) = self.find_tool_with_wrong_arguments(&request) {
            self.site().mcp.count(tool.operation(), McpOutcome::Advice);
            let advice = ToolAnswer::advice(
                "arguments must be a JSON object; see the input schema of the tool",
                McpOutcome::Advice,
            );
            let mut result = serde_json::to_value(advice.result)
                .map_err(|_| ErrorData::internal_error("the answer cannot be encoded", None))?;
            if !is_of_2026_07_28(&context) {
                result.as_object_mut().map(|fields| fields.remove("resultType"));
            }
            return Ok(CustomResult::new(result));
        }
        self.site().mcp.count(McpOperation::Other, McpOutcome::Refused);
        if KNOWN_METHODS.contains(&request.method.as_str()) {
            return Err(ErrorData::invalid_params("the parameters do not fit the method", None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this method is not supported", None))
    }

    async fn on_initialized(&self, _: NotificationContext<RoleServer>) {}
}

/// Refuses a cursor where a list has one part only.
fn refuse_cursor(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor) {
        None => Ok(()),
        Some(_) => Err(ErrorData::invalid_params("the cursor is not one of this list; list again without it", None)),
    }
}
