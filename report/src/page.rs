use crate::glossary::WORDS;
use crate::table::HtmlTable;
use crate::{Error, Figure, Origin, Table};
use elastico_core::Provenance;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

const TEMPLATE: &str = include_str!("page.html");

/// One HTML document that needs nothing else: no network, no script.
#[derive(Clone, Debug)]
pub struct Page {
    /// The title.
    pub title: String,
    /// What the reader should take away, in a sentence or three.
    pub summary: String,
    /// Origins that no figure shows, for example of a table.
    pub origins: Vec<Origin>,
    /// What the reader must know before trusting the numbers.
    pub warnings: Vec<String>,
    /// The parts in order.
    pub sections: Vec<Section>,
    /// Where the numbers come from.
    pub provenance: Vec<Provenance>,
}

impl Page {
    /// A page without sections.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            summary: String::new(),
            origins: Vec::new(),
            warnings: Vec::new(),
            sections: Vec::new(),
            provenance: Vec::new(),
        }
    }

    /// Adds a section.
    #[must_use]
    pub fn with(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// Every origin whose numbers are on the page, sorted: the badges of the title.
    pub fn all_origins(&self) -> BTreeSet<Origin> {
        let figures =
            self.sections.iter().flat_map(|section| &section.blocks).filter_map(|block| match block {
                Block::Figure(figure) => Some(figure.origin.clone()),
                _ => None,
            });
        let stated =
            self.provenance.iter().map(|provenance| Origin::new(provenance.device_kind, &provenance.device));
        self.origins.iter().cloned().chain(figures).chain(stated).collect()
    }

    /// The document.
    ///
    /// # Errors
    /// A table with ragged rows.
    pub fn render(&self) -> Result<String, Error> {
        let mut environment = Environment::new();
        // A template that names an absent value is a mistake, not an empty text.
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.add_template("page.html", TEMPLATE)?;
        let context = self.context()?;
        Ok(environment.get_template("page.html")?.render(minijinja::value::Serde(&context))?)
    }

    fn context(&self) -> Result<Context, Error> {
        let mut used = BTreeMap::new();
        let mut figures = 0;
        let mut sections = Vec::new();
        for section in &self.sections {
            let mut blocks = Vec::new();
            for block in &section.blocks {
                blocks.push(match block {
                    Block::Text(text) => BlockContext::Text { text: text.clone() },
                    Block::Code(text) => BlockContext::Code { text: text.clone() },
                    Block::Facts(facts) => BlockContext::Facts { facts: facts.clone() },
                    Block::Table(table) => BlockContext::Table { table: table.to_html_parts()? },
                    Block::Figure(figure) => {
                        figures += 1;
                        BlockContext::Figure {
                            number: figures,
                            title: figure.title.clone(),
                            caption: figure.caption.clone(),
                            badge: Badge::from(&figure.origin),
                            svg: figure.svg.clone(),
                            width: figure.width,
                        }
                    }
                });
            }
            sections.push(SectionContext {
                id: anchor(&section.title, &mut used),
                title: section.title.clone(),
                blocks,
            });
        }
        let glossary = WORDS.iter().map(|(word, meaning)| (*word, *meaning)).collect();
        Ok(Context {
            title: self.title.clone(),
            summary: self.summary.clone(),
            badges: self.all_origins().iter().map(Badge::from).collect(),
            warnings: self.warnings.clone(),
            sections,
            provenance: self.provenance.iter().map(provenance_rows).collect(),
            glossary,
        })
    }
}

/// A part of a page.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Its content in order.
    pub blocks: Vec<Block>,
}

impl Section {
    /// A section without content.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), blocks: Vec::new() }
    }

    /// Adds a block.
    #[must_use]
    pub fn with(mut self, block: impl Into<Block>) -> Self {
        self.blocks.push(block.into());
        self
    }
}

/// What a section is made of. Texts are plain: nothing in them is read as HTML.
#[derive(Clone, Debug)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// Text in a fixed-width face, for example rules or a command.
    Code(String),
    /// A few numbers that matter most.
    Facts(Vec<Fact>),
    /// A figure with its caption.
    Figure(Figure),
    /// A table that scrolls in its own box.
    Table(Table),
}

impl From<&str> for Block {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Block {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Figure> for Block {
    fn from(figure: Figure) -> Self {
        Self::Figure(figure)
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl From<Vec<Fact>> for Block {
    fn from(facts: Vec<Fact>) -> Self {
        Self::Facts(facts)
    }
}

/// One number that matters.
#[derive(Clone, Debug, Serialize)]
pub struct Fact {
    /// The number as text, with its unit.
    pub value: String,
    /// What it is.
    pub label: String,
    /// Interval, n or condition.
    pub note: String,
}

impl Fact {
    /// A number, what it is, and its interval, n or condition.
    pub fn new(value: impl Into<String>, label: impl Into<String>, note: impl Into<String>) -> Self {
        Self { value: value.into(), label: label.into(), note: note.into() }
    }
}

#[derive(Serialize)]
struct Context {
    title: String,
    summary: String,
    badges: Vec<Badge>,
    warnings: Vec<String>,
    sections: Vec<SectionContext>,
    provenance: Vec<Vec<(String, String)>>,
    glossary: Vec<(&'static str, &'static str)>,
}

#[derive(Serialize)]
struct Badge {
    text: String,
    is_measured: bool,
}

impl From<&Origin> for Badge {
    fn from(origin: &Origin) -> Self {
        Self { text: origin.to_string(), is_measured: origin.kind.is_measured() }
    }
}

#[derive(Serialize)]
struct SectionContext {
    id: String,
    title: String,
    blocks: Vec<BlockContext>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum BlockContext {
    Text { text: String },
    Code { text: String },
    Facts { facts: Vec<Fact> },
    Table { table: HtmlTable },
    Figure { number: usize, title: String, caption: String, badge: Badge, svg: String, width: u32 },
}

/// A link target of letters, digits and hyphens, unique on the page.
fn anchor(title: &str, used: &mut BTreeMap<String, usize>) -> String {
    let slug: String = title
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' })
        .collect();
    let slug = format!("section-{}", slug.trim_matches('-'));
    let seen = used.entry(slug.clone()).or_insert(0);
    *seen += 1;
    if *seen == 1 { slug } else { format!("{slug}-{seen}") }
}

fn provenance_rows(provenance: &Provenance) -> Vec<(String, String)> {
    let mut rows = vec![
        ("numbers".to_owned(), Origin::new(provenance.device_kind, &provenance.device).to_string()),
        ("device".to_owned(), provenance.device.clone()),
        ("source".to_owned(), provenance.source.clone()),
    ];
    if let Some(digest) = &provenance.source_digest {
        rows.push(("source digest".to_owned(), digest.to_string()));
    }
    if let Some(seed) = provenance.seed {
        rows.push(("seed".to_owned(), seed.0.to_string()));
    }
    rows.push(("ElastiCo".to_owned(), provenance.elastico_version.clone()));
    rows.extend(provenance.facts.iter().map(|(name, value)| (name.clone(), value.clone())));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bar, BarGroup, BarUnit, Bars, Column};
    use elastico_core::{DeviceKind, Seed};

    fn page() -> Page {
        let mut bars =
            Bars::new(Origin::new(DeviceKind::Simulated, "sim:h100"), "Error", "error", BarUnit::Percent);
        let bar = Bar { name: "trees".into(), value: 0.1, interval: None, n: 4, is_baseline: false };
        bars.groups.push(BarGroup { name: "random".into(), bars: vec![bar] });
        let mut table = Table::new("x/1", "Rows <i>", vec![Column::text("name")]);
        table.push(vec!["<script>alert(1)</script>".into()]);
        let mut page = Page::new("A & B <b>").with(
            Section::new("Same name")
                .with("<img src=x onerror=alert(1)>")
                .with(Figure::bars(&bars).unwrap())
                .with(table)
                .with(vec![Fact::new("<1", "fact", "n = 3")]),
        );
        page.sections.push(Section::new("Same name").with(Block::Code("if a < b { safe }".into())));
        page.provenance.push(Provenance {
            elastico_version: "0.1.0".into(),
            device_kind: DeviceKind::Simulated,
            device: "sim:h100".into(),
            seed: Some(Seed(7)),
            source: "campaign \"x\"".into(),
            source_digest: None,
            facts: BTreeMap::new(),
        });
        page
    }

    #[test]
    fn user_texts_never_become_markup() {
        let html = page().render().unwrap();
        for forbidden in ["<script", "<img", "<i>", "<b>", "onerror=alert(1)>"] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
        assert!(html.contains("&lt;script&gt;"));
    }

    #[test]
    fn the_page_needs_nothing_from_outside() {
        let html = page().render().unwrap();
        let without_namespace = html.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http:", "https:", "url(\"", "@import", "src=\"", "<link"] {
            assert!(!without_namespace.contains(outside), "{outside}");
        }
    }

    #[test]
    fn the_badge_is_in_the_title_and_sections_have_targets_of_their_own() {
        let html = page().render().unwrap();
        let title = &html[html.find("<title>").unwrap()..html.find("</title>").unwrap()];
        assert!(title.contains("simulated h100"), "{title}");
        assert!(html.contains("id=\"section-same-name\"") && html.contains("id=\"section-same-name-2\""));
        assert_eq!(page().all_origins().len(), 1);
    }
}
