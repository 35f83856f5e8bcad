//! Text formats of metrics: Prometheus text 0.0.4, and `OpenMetrics` 1.0 for clients that accept it.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::ACCEPT;

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Prometheus text exposition format 0.0.4.
    Prometheus,
    /// `OpenMetrics` 1.0, section 4.1.
    OpenMetrics,
}

impl MetricsFormat {
    /// Chooses the format for a request: `OpenMetrics` only if `Accept` names it with at least the weight of
    /// `text/plain` (RFC 9110, section 12.5.1). `curl` and browsers, which name neither, get the Prometheus format.
    pub fn negotiate(headers: &HeaderMap) -> MetricsFormat {
        let (mut open_weight, mut plain_weight) = (0.0, 0.0);
        for field in headers.get_all(ACCEPT) {
            for range in field.to_str().unwrap_or_default().split(',') {
                let mut parts = range.split(';').map(str::trim);
                let name = parts.next().unwrap_or_default();
                let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
                if name.eq_ignore_ascii_case("application/openmetrics-text") {
                    open_weight = f32::max(open_weight, weight);
                } else if name.eq_ignore_ascii_case("text/plain") {
                    plain_weight = f32::max(plain_weight, weight);
                }
            }
        }
        if open_weight > 0.0 && open_weight >= plain_weight {
            MetricsFormat::OpenMetrics
        } else {
            MetricsFormat::Prometheus
        }
    }

    /// The media type of the format.
    pub fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            MetricsFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts `text`, which is in the `OpenMetrics` format, to this format.
    pub fn render(self, text: String) -> String {
        match self {
            MetricsFormat::Prometheus => to_prometheus(&text),
            MetricsFormat::OpenMetrics => text,
        }
    }
}

/// Converts `OpenMetrics` to Prometheus text 0.0.4. The samples are equal in both. The differences: a counter is
/// described under the name of its samples, `info` becomes a gauge, `unknown` becomes `untyped`, and `# UNIT` and `#
/// EOF` are left out.
fn to_prometheus(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // `# HELP` comes before `# TYPE`, and the name of the samples depends on the type.
    let mut help = None;
    for line in text.lines() {
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = Some(text);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            let (name, kind): (Cow<'_, str>, _) = match kind {
                "counter" => (format!("{name}_total").into(), kind),
                "info" => (format!("{name}_info").into(), "gauge"),
                "unknown" => (name.into(), "untyped"),
                _ => (name.into(), kind),
            };
            if let Some((_, text)) = help.take().and_then(|text| text.split_once(' ')) {
                out.extend(["# HELP ", &name, " ", text, "\n"]);
            }
            out.extend(["# TYPE ", &name, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            out.extend([line, "\n"]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn openmetrics_is_sent_to_clients_that_prefer_it_and_plain_text_to_all_others() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (prometheus, MetricsFormat::OpenMetrics),
            ("application/openmetrics-text", MetricsFormat::OpenMetrics),
            ("Application/OpenMetrics-Text; q=1, text/plain", MetricsFormat::OpenMetrics),
            ("text/plain;version=0.0.4, application/openmetrics-text;q=0.1", MetricsFormat::Prometheus),
            ("application/openmetrics-text;q=0", MetricsFormat::Prometheus),
            ("text/plain", MetricsFormat::Prometheus),
            ("*/*", MetricsFormat::Prometheus),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(MetricsFormat::negotiate(&headers), format, "{accept}");
        }
        assert_eq!(MetricsFormat::negotiate(&HeaderMap::new()), MetricsFormat::Prometheus);
    }

    #[test]
    fn each_family_is_described_under_the_name_of_its_samples() {
        let open = "# HELP a_build The program.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
                    # HELP a_syncs Checks.\n# TYPE a_syncs counter\na_syncs_total{result=\"x\"} 3\n\
                    # HELP a_store_bytes Size.\n# TYPE a_store_bytes gauge\n# UNIT a_store_bytes bytes\na_store_bytes 7\n\
                    # TYPE a_odd unknown\na_odd 1\n# EOF\n";
        let plain = "# HELP a_build_info The program.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
                     # HELP a_syncs_total Checks.\n# TYPE a_syncs_total counter\na_syncs_total{result=\"x\"} 3\n\
                     # HELP a_store_bytes Size.\n# TYPE a_store_bytes gauge\na_store_bytes 7\n\
                     # TYPE a_odd untyped\na_odd 1\n";
        assert_eq!(MetricsFormat::Prometheus.render(open.to_owned()), plain);
        assert_eq!(MetricsFormat::OpenMetrics.render(open.to_owned()), open);
    }

    #[test]
    fn several_accept_fields_are_combined_and_an_invalid_q_value_counts_as_zero() {
        for (fields, format) in [
            (["text/plain;q=0.5", "application/openmetrics-text;q=0.7"], MetricsFormat::OpenMetrics),
            (["text/plain;q=0.5", "application/openmetrics-text;q=0.4"], MetricsFormat::Prometheus),
            (["text/plain;q=0.5", "application/openmetrics-text; version=1.0.0; q=0.5"], MetricsFormat::OpenMetrics),
            (
                ["application/openmetrics-text;q=0.9", "application/openmetrics-text;q=0.1, text/plain;q=0.5"],
                MetricsFormat::OpenMetrics,
            ),
            (["text/plain;q=0.9", "text/plain;q=0.1, application/openmetrics-text;q=0.5"], MetricsFormat::Prometheus),
            (["text/html", "application/openmetrics-text;q=x"], MetricsFormat::Prometheus),
        ] {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(ACCEPT, HeaderValue::from_static(field));
            }
            assert_eq!(MetricsFormat::negotiate(&headers), format, "{fields:?}");
        }
        assert!(MetricsFormat::Prometheus.content_type().starts_with("text/plain; version=0.0.4"));
        assert!(MetricsFormat::OpenMetrics.content_type().starts_with("application/openmetrics-text; version=1.0.0"));
    }
}
