//! The keys of `[assistant]`: what the site offers to coding assistants, and questions that a model answers.

use std::time::Duration;

use crate::config::key_table::{ConfigKey, KEY, Section, ValueType};

pub(super) const ASSISTANT: Section = Section {
    name: "assistant",
    keys: &[
        ConfigKey {
            name: "assistant.mcp",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether the site is an MCP server at `/_docwharf/mcp`",
            comment: "Whether coding assistants can search and read the site by the Model Context Protocol, at \
                      /_docwharf/mcp below basePath. false: this address is not found. All keys of [assistant] change \
                      without a restart.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.mcpPerMinute",
            value_type: ValueType::Number { min: 1, max: 65_535 },
            default: "120",
            help: "MCP requests of one client address in a minute; others get a 429",
            comment: "MCP requests of one client address in a minute. Others get a 429 with Retry-After.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.markdown",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether each page is also served as Markdown",
            comment: "Whether each page is also served as Markdown: at its address with .md at the end, and at its own \
                      address to clients that accept text/markdown. A .md file of the site comes first.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.llms",
            value_type: ValueType::Flag,
            default: "true",
            help: "whether `/llms.txt` and `/llms-full.txt` are made for a site that has none",
            comment: "Whether /llms.txt and /llms-full.txt, the list and the text of all pages, are made for a site that \
                      has none.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.hosts",
            value_type: ValueType::Texts,
            default: "[]",
            help: "the hosts under which readers reach the site, each with or without a port; ask and the playground \
                   answer under these, IP addresses and loopback only",
            comment: "The hosts under which readers reach the site, each with or without a port: \"docs.example.com\". \
                      Ask and the playground answer requests under these hosts, IP addresses and loopback only, \
                      because any domain can be made to point to this address. MCP requests with the field Origin, \
                      which browsers send, are answered only if its host is listed; on a loopback listener, so are MCP \
                      requests whose Host is not loopback.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.baseUrl",
            value_type: ValueType::Url,
            example: "\"http://127.0.0.1:11434/v1\"",
            help: "the endpoint of a model that answers questions of readers, with the API of OpenAI \
                   (`/chat/completions`); needs `assistant.model`; without both: off",
            comment: "The endpoint of a model that answers questions of readers from the pages of the site. It has the API \
                      of OpenAI, as Ollama, vLLM and llama.cpp have it: docwharf appends /chat/completions to the path. \
                      It gets the question and passages of pages. Without baseUrl and model, no question is answered; \
                      one without the other is a mistake. No default.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.model",
            value_type: ValueType::Text,
            example: "\"qwen2.5:7b\"",
            help: "the name of the model; needs `assistant.baseUrl`",
            comment: "The name of the model at that endpoint. No default.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.keyFile",
            value_type: ValueType::Path,
            example: "\"assistant-key\"",
            help: "the file with the key of that endpoint; else the systemd credential `assistant-key`; without both: \
                   no key is sent",
            comment: "The file with the key of that endpoint; without it, the systemd credential assistant-key, if there is \
                      one. Only its owner and group should be able to read it (mode 0640). docwharf reads it again for \
                      each question. No default: no key is sent.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.maxQuestion",
            value_type: ValueType::Number { min: 1, max: 10_000 },
            default: "1000",
            help: "the longest question, in characters",
            comment: "The longest question, and the passages that the model gets with a question, in characters.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.maxContext",
            value_type: ValueType::Number { min: 1000, max: 1_000_000 },
            default: "24000",
            help: "the passages of pages that the model gets with a question, in characters",
            ..KEY
        },
        ConfigKey {
            name: "assistant.maxAnswer",
            value_type: ValueType::Number { min: 1, max: 100_000 },
            default: "1024",
            help: "the longest answer, in tokens of the model",
            comment: "The longest answer, in tokens of the model.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.timeout",
            value_type: ValueType::Duration { min: Duration::from_millis(100) },
            default: "\"60s\"",
            help: "time limit of an answer",
            comment: "Time limit of a whole answer.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.parallel",
            value_type: ValueType::Number { min: 1, max: 256 },
            default: "2",
            help: "questions that are answered at a time; others get a 503",
            comment: "Questions that are answered at a time. Others get a 503 with Retry-After.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.perMinute",
            value_type: ValueType::Number { min: 1, max: 65_535 },
            default: "10",
            help: "questions of one client address in a minute; others get a 429",
            comment: "Questions of one client address in a minute, and of all readers in a day (UTC). Others get a 429 \
                      with Retry-After.",
            ..KEY
        },
        ConfigKey {
            name: "assistant.perDay",
            value_type: ValueType::Number { min: 1, max: 1_000_000_000 },
            default: "2000",
            help: "questions of all readers in a day (UTC); others get a 429",
            ..KEY
        },
    ],
};
