//! The words of the search page. `assets/search.js` has the words of the box; a test compares those that both have.

use super::language::primary_subtag;
use super::markup::push_escaped;

/// The words of the search page in one language. `{}` is the place of a value. None has a character with a meaning in
/// HTML.
#[derive(Debug)]
pub(super) struct PageTexts {
    pub(super) lang: &'static str,
    pub(super) search: &'static str,
    pub(super) count: &'static str,
    pub(super) none: &'static str,
    pub(super) failed: &'static str,
    pub(super) building: &'static str,
    pub(super) indexing: &'static str,
    pub(super) partial: &'static str,
    pub(super) corrected: &'static str,
    pub(super) invalid: &'static str,
    pub(super) within: &'static str,
    pub(super) everywhere: &'static str,
    /// The name of the links to further pages of results.
    pub(super) pages: &'static str,
    pub(super) previous: &'static str,
    pub(super) next: &'static str,
    pub(super) home: &'static str,
}

impl PageTexts {
    /// Returns the words in the language of a tag, or in English.
    pub(super) fn for_language(tag: &str) -> &'static PageTexts {
        let primary = primary_subtag(tag);
        TEXTS.iter().find(|texts| texts.lang.eq_ignore_ascii_case(primary)).unwrap_or(&TEXTS[0])
    }
}

/// A sentence with its value in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilledText<'a> {
    before: &'a str,
    value: &'a str,
    after: &'a str,
}

impl<'a> FilledText<'a> {
    /// A sentence without a value.
    pub(super) fn plain(text: &'static str) -> FilledText<'a> {
        FilledText { before: text, value: "", after: "" }
    }

    /// Puts a value in the place of `{}`.
    pub(super) fn new(text: &'static str, value: &'a str) -> FilledText<'a> {
        let (before, after) = text.split_once("{}").unwrap_or((text, ""));
        FilledText { before, value, after }
    }

    /// Appends the sentence to a page, escaped. The value has its own direction.
    pub(super) fn push_to(self, out: &mut String) {
        push_escaped(out, self.before);
        if !self.value.is_empty() {
            out.push_str("<bdi>");
            push_escaped(out, self.value);
            out.push_str("</bdi>");
        }
        push_escaped(out, self.after);
    }
}

/// All languages of the search page. The first is used for every other language.
pub(super) static TEXTS: [PageTexts; 8] = [
    PageTexts {
        lang: "en",
        search: "Search",
        count: "Results: {}.",
        none: "No results for “{}”.",
        failed: "The search did not answer.",
        building: "The search index is being built. Please wait a moment.",
        indexing: "A new version is being indexed. These results come from the version before it.",
        partial: "The search took too long. There may be more results.",
        corrected: "Results for “{}”.",
        invalid: "The address of this search is not valid.",
        within: "Only pages below “{}”.",
        everywhere: "Search the whole site",
        pages: "Pages of results",
        previous: "Previous",
        next: "Next",
        home: "Back to the documentation",
    },
    PageTexts {
        lang: "de",
        search: "Suche",
        count: "Ergebnisse: {}.",
        none: "Keine Ergebnisse für „{}“.",
        failed: "Die Suche hat nicht geantwortet.",
        building: "Der Suchindex wird erstellt. Bitte einen Moment warten.",
        indexing: "Eine neue Version wird indexiert. Diese Ergebnisse stammen aus der Version davor.",
        partial: "Die Suche hat zu lange gedauert. Es kann weitere Ergebnisse geben.",
        corrected: "Ergebnisse für „{}“.",
        invalid: "Die Adresse dieser Suche ist ungültig.",
        within: "Nur Seiten unter „{}“.",
        everywhere: "Alle Seiten durchsuchen",
        pages: "Ergebnisseiten",
        previous: "Zurück",
        next: "Weiter",
        home: "Zur Dokumentation",
    },
    PageTexts {
        lang: "fr",
        search: "Rechercher",
        count: "Résultats : {}.",
        none: "Aucun résultat pour « {} ».",
        failed: "La recherche n’a pas répondu.",
        building: "L’index de recherche est en cours de création. Veuillez patienter un instant.",
        indexing: "Une nouvelle version est en cours d’indexation. Ces résultats proviennent de la version précédente.",
        partial: "La recherche a pris trop de temps. Il peut y avoir d’autres résultats.",
        corrected: "Résultats pour « {} ».",
        invalid: "L’adresse de cette recherche n’est pas valide.",
        within: "Uniquement les pages sous « {} ».",
        everywhere: "Rechercher dans tout le site",
        pages: "Pages de résultats",
        previous: "Précédent",
        next: "Suivant",
        home: "Retour à la documentation",
    },
    PageTexts {
        lang: "es",
        search: "Buscar",
        count: "Resultados: {}.",
        none: "No hay resultados para «{}».",
        failed: "La búsqueda no ha respondido.",
        building: "Se está creando el índice de búsqueda. Espere un momento.",
        indexing: "Se está indexando una nueva versión. Estos resultados proceden de la versión anterior.",
        partial: "La búsqueda ha tardado demasiado. Puede haber más resultados.",
        corrected: "Resultados para «{}».",
        invalid: "La dirección de esta búsqueda no es válida.",
        within: "Solo páginas dentro de «{}».",
        everywhere: "Buscar en todo el sitio",
        pages: "Páginas de resultados",
        previous: "Anterior",
        next: "Siguiente",
        home: "Volver a la documentación",
    },
    PageTexts {
        lang: "pt",
        search: "Pesquisar",
        count: "Resultados: {}.",
        none: "Nenhum resultado para “{}”.",
        failed: "A pesquisa não respondeu.",
        building: "O índice de pesquisa ainda não está pronto. Aguarde um momento.",
        indexing: "A indexação de uma nova versão está em andamento. Estes resultados são da versão anterior.",
        partial: "A pesquisa demorou demais. Pode haver mais resultados.",
        corrected: "Resultados para “{}”.",
        invalid: "O endereço desta pesquisa não é válido.",
        within: "Somente páginas em “{}”.",
        everywhere: "Pesquisar em todo o site",
        pages: "Páginas de resultados",
        previous: "Anterior",
        next: "Seguinte",
        home: "Voltar à documentação",
    },
    PageTexts {
        lang: "zh",
        search: "搜索",
        count: "搜索结果：{} 条。",
        none: "没有找到与“{}”相关的结果。",
        failed: "搜索没有响应。",
        building: "正在建立搜索索引，请稍候。",
        indexing: "正在为新版本建立索引，当前结果来自上一个版本。",
        partial: "搜索时间过长，可能还有更多结果。",
        corrected: "以下是“{}”的结果。",
        invalid: "此搜索地址无效。",
        within: "仅限“{}”下的页面。",
        everywhere: "搜索整个网站",
        pages: "结果页",
        previous: "上一页",
        next: "下一页",
        home: "返回文档",
    },
    PageTexts {
        lang: "ja",
        search: "検索",
        count: "検索結果: {} 件。",
        none: "「{}」に一致する結果はありません。",
        failed: "検索の応答がありません。",
        building: "検索インデックスを作成しています。しばらくお待ちください。",
        indexing: "新しいバージョンのインデックスを作成中です。前のバージョンの結果を表示しています。",
        partial: "検索に時間がかかりすぎました。ほかにも結果がある可能性があります。",
        corrected: "「{}」の検索結果です。",
        invalid: "この検索のアドレスは正しくありません。",
        within: "「{}」以下のページのみ。",
        everywhere: "サイト全体を検索",
        pages: "検索結果のページ",
        previous: "前へ",
        next: "次へ",
        home: "ドキュメントに戻る",
    },
    PageTexts {
        lang: "ko",
        search: "검색",
        count: "검색 결과: {}개.",
        none: "“{}”에 대한 결과가 없습니다.",
        failed: "검색이 응답하지 않습니다.",
        building: "검색 색인을 만드는 중입니다. 잠시 기다려 주세요.",
        indexing: "새 버전의 색인을 만드는 중입니다. 이전 버전의 결과를 표시합니다.",
        partial: "검색 시간이 너무 길었습니다. 결과가 더 있을 수 있습니다.",
        corrected: "“{}”에 대한 결과입니다.",
        invalid: "이 검색의 주소가 올바르지 않습니다.",
        within: "“{}” 아래의 페이지만.",
        everywhere: "사이트 전체 검색",
        pages: "결과 페이지",
        previous: "이전",
        next: "다음",
        home: "문서로 돌아가기",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_the_primary_language() {
        for (tag, expected) in
            [("en", "en"), ("pt-BR", "pt"), ("ZH-Hant", "zh"), ("ja", "ja"), ("ar", "en"), ("", "en"), ("eng", "en")]
        {
            assert_eq!(PageTexts::for_language(tag).lang, expected, "{tag}");
        }
    }

    #[test]
    fn every_language_has_all_words() {
        for texts in &TEXTS {
            let with_value = [texts.count, texts.none, texts.corrected, texts.within];
            let plain = [
                texts.search,
                texts.failed,
                texts.building,
                texts.indexing,
                texts.partial,
                texts.invalid,
                texts.everywhere,
                texts.pages,
                texts.previous,
                texts.next,
                texts.home,
            ];
            for text in with_value {
                assert_eq!(text.matches("{}").count(), 1, "{}: {text}", texts.lang);
            }
            for text in plain {
                assert!(!text.is_empty() && !text.contains("{}"), "{}: {text}", texts.lang);
            }
            for text in with_value.iter().chain(&plain) {
                // Some are written into pages as they are.
                assert!(!text.contains(['&', '<', '>', '"', '\'']), "{}: {text}", texts.lang);
            }
        }
    }

    #[test]
    fn values_are_escaped_and_isolated() {
        let mut out = String::new();
        FilledText::new("No results for “{}”.", "<b>{}").push_to(&mut out);
        assert_eq!(out, "No results for “<bdi>&lt;b&gt;{}</bdi>”.");
    }
}
