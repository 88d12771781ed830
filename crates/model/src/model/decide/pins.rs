//! The hashes of plug-ins in a model's `sequor.toml`: reads and replaces them. The rest of the file stays as it is.

use toml_edit::{DocumentMut, Item, TableLike, Value};

/// The tables of a model's file that name plug-ins of one world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum PluginTables {
    /// `[plugins.scheduler]`.
    Scheduler,
    /// `[plugins.initializer]`.
    Initializer,
    /// Each `[[plugins.processor]]`, and `[model]`.
    Processor,
}

/// A table that can name a plug-in, and its key that contains the name.
type NamingTable<'a> = (&'static str, &'a mut dyn TableLike);

impl PluginTables {
    /// The hashes that a file gives for a plug-in, in lower case. A model can name a plug-in at several places.
    pub(in crate::model) fn pins(self, text: &str, plugin: &str) -> Vec<String> {
        let Ok(mut document) = text.parse::<DocumentMut>() else { return Vec::new() };
        let hash = |table: &mut dyn TableLike| Some(table.get("sha256")?.as_str()?.to_ascii_lowercase());
        self.naming(&mut document, plugin).into_iter().filter_map(hash).collect()
    }

    /// The file with this hash in place of each other hash of the plug-in.
    pub(in crate::model) fn with_pin(self, text: &str, plugin: &str, sha256: &str) -> Result<String, String> {
        let mut document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| e.message().to_owned())?;
        let mut any = false;
        for table in self.naming(&mut document, plugin) {
            let Some(hash) = table.get_mut("sha256").and_then(Item::as_value_mut) else { continue };
            let decor = hash.decor().clone();
            *hash = Value::from(sha256);
            *hash.decor_mut() = decor;
            any = true;
        }
        if any { Ok(document.to_string()) } else { Err(format!("it names no sha256 of {plugin}")) }
    }

    /// The tables that name this plug-in.
    fn naming<'a>(self, document: &'a mut DocumentMut, plugin: &str) -> Vec<&'a mut dyn TableLike> {
        let is_named =
            |(key, table): NamingTable<'a>| (table.get(key).and_then(Item::as_str) == Some(plugin)).then_some(table);
        self.tables(document).into_iter().filter_map(is_named).collect()
    }

    fn tables(self, document: &mut DocumentMut) -> Vec<NamingTable<'_>> {
        let mut tables: Vec<NamingTable<'_>> = Vec::new();
        for (key, item) in document.iter_mut() {
            match key.get() {
                "model" if self == PluginTables::Processor => {
                    tables.extend(item.as_table_like_mut().map(|table| ("plugin", table)));
                }
                "plugins" => {
                    let plugins = item.as_table_like_mut().and_then(|plugins| plugins.get_mut(self.key()));
                    tables.extend(plugins.into_iter().flat_map(each_table).map(|table| ("use", table)));
                }
                _ => {}
            }
        }
        tables
    }

    /// The key in `[plugins]`.
    fn key(self) -> &'static str {
        match self {
            PluginTables::Scheduler => "scheduler",
            PluginTables::Initializer => "initializer",
            PluginTables::Processor => "processor",
        }
    }
}

/// A table, or the tables of an array, in any TOML notation.
fn each_table(item: &mut Item) -> Vec<&mut dyn TableLike> {
    match item {
        Item::ArrayOfTables(tables) => tables.iter_mut().map(|table| table as &mut dyn TableLike).collect(),
        Item::Value(Value::Array(values)) => {
            let tables = values.iter_mut().filter_map(Value::as_inline_table_mut);
            tables.map(|table| table as &mut dyn TableLike).collect()
        }
        table => table.as_table_like_mut().into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::PluginTables::{Initializer, Processor, Scheduler};

    #[test]
    fn changing_a_pin_edits_only_its_hash() {
        let file = "schema = 1\n[plugins]\nscheduler = { use = \"edf\", sha256 = \"3F2a\" } # mine\n";
        assert_eq!(Scheduler.pins(file, "edf"), ["3f2a"]);
        assert!(Scheduler.pins(file, "single").is_empty() && Initializer.pins(file, "edf").is_empty());
        assert_eq!(Scheduler.with_pin(file, "edf", "77b0").unwrap(), file.replace("3F2a", "77b0"));
        let table = "[plugins.scheduler]\nsha256 = \"3f2a\"   # of Monday\nuse = \"edf\"\nconfig = { a = 1 }\n[sequence]\nidle = \"5s\"\n";
        assert_eq!(Scheduler.with_pin(table, "edf", "3f2a").unwrap(), table);
        assert_eq!(Scheduler.with_pin(table, "edf", "77b0").unwrap(), table.replace("3f2a", "77b0"));
        assert!(Scheduler.pins("[plugins.scheduler]\nuse = \"edf\"\n", "edf").is_empty());
        for other in ["schema = 1\n", "[plugins.scheduler]\nuse = \"edf\"\n", "plugins = 3\n", "[plugins\n"] {
            assert!(Scheduler.with_pin(other, "edf", "77b0").is_err(), "{other}");
        }
        let initializer = "[plugins.initializer]   # first states\nuse = \"fork\"\nsha256 = '3f2a'\n";
        assert_eq!(Initializer.pins(initializer, "fork"), ["3f2a"]);
        let written = Initializer.with_pin(initializer, "fork", "77b0").unwrap();
        assert_eq!(written, initializer.replace("'3f2a'", "\"77b0\""));
    }

    #[test]
    fn the_named_processor_is_found_among_several() {
        let file = "# all of them\n[[plugins.processor]]\nuse = \"fbank\"\nsha256 = \"aa\"\n\n[[plugins.processor]]  # second\n\
                    sha256 = \"bb\" # of Monday\nuse = \"ctc\"\n\n[[plugins.processor]]\nuse = \"redact\"\n\n\
                    [[plugins.processor]]\nuse = \"ctc\"\nsha256 = \"cc\"\n";
        assert_eq!(Processor.pins(file, "ctc"), ["bb", "cc"]);
        assert_eq!(Processor.pins(file, "fbank"), ["aa"]);
        assert!(Processor.pins(file, "redact").is_empty());
        let written = Processor.with_pin(file, "ctc", "dd").unwrap();
        assert_eq!(written, file.replace("\"bb\"", "\"dd\"").replace("\"cc\"", "\"dd\""));
        let inline = "plugins = { processor = [ { use = \"a\", sha256 = \"aa\" }, { use = \"b\",  sha256 = \"bb\" } ] } # both\n";
        assert_eq!(Processor.with_pin(inline, "b", "cc").unwrap(), inline.replace("bb", "cc"));
        let model = "[model]\nplugin = \"fbank\" # it is the model\nsha256 = \"aa\"\n";
        assert_eq!(Processor.pins(model, "fbank"), ["aa"]);
        assert_eq!(Processor.with_pin(model, "fbank", "bb").unwrap(), model.replace("aa", "bb"));
    }
}
