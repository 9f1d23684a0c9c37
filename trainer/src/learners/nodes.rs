//! Reads the private trees of smartcore through its `Serialize`, without a text or a tree of values in between.
//!
//! smartcore keeps its nodes private; what it serialises is
//! `{forest_regressor: {trees: [{nodes: [{output, split_feature, split_value, true_child, false_child, …}], …}]}}`.
//! The serializer below keeps just these fields: 100 full trees on 20,000 rows would be 350 MB of JSON.

use elastico_models::{Tree, TreeNode, round_down};
use serde::ser::{self, Serialize};
use std::fmt;

/// The trees of a fitted forest.
pub(crate) fn extract(forest: &impl Serialize) -> Result<Vec<Tree>, String> {
    let mut reader = Reader::default();
    forest.serialize(&mut reader).map_err(|error| error.to_string())?;
    for tree in &mut reader.trees {
        let count = tree.nodes.len();
        // smartcore numbers children after their parent, so that a walk from the root ends.
        let sound = tree.nodes.iter().enumerate().all(|(index, node)| {
            let child = |child: u32| (child as usize) > index && (child as usize) < count;
            let whole = child(node.left) && child(node.right) && node.threshold.is_finite();
            node.value.is_finite() && (node.is_leaf() || whole)
        });
        if count == 0 || !sound {
            return Err("its trees are not laid out as expected".to_owned());
        }
        for node in &mut tree.nodes {
            if node.is_leaf() {
                *node = TreeNode::leaf(node.value);
            } else {
                node.value = 0.0;
            }
        }
    }
    Ok(reader.trees)
}

#[derive(Default)]
struct Reader {
    trees: Vec<Tree>,
    field: &'static str,
}

impl Reader {
    fn node(&mut self) -> Option<&mut TreeNode> {
        self.trees.last_mut()?.nodes.last_mut()
    }

    fn real(&mut self, value: f64) {
        let field = self.field;
        if let Some(node) = self.node() {
            match field {
                "output" => node.value = value,
                "split_value" => node.threshold = round_down(value),
                _ => {}
            }
        }
    }

    fn count(&mut self, value: u64) -> Result<(), Refused> {
        let field = self.field;
        if let Some(node) = self.node() {
            let slot = match field {
                "split_feature" => &mut node.feature,
                "true_child" => &mut node.left,
                "false_child" => &mut node.right,
                _ => return Ok(()),
            };
            *slot = u32::try_from(value).map_err(|_| Refused("a tree has over 2^32 nodes".to_owned()))?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

macro_rules! ignore {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, _: $type) -> Result<(), Refused> {
            Ok(())
        })*
    };
}

macro_rules! count {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, value: $type) -> Result<(), Refused> {
            self.count(u64::from(value))
        })*
    };
}

impl ser::Serializer for &mut Reader {
    type Ok = ();
    type Error = Refused;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    ignore!(serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_char: char, serialize_str: &str, serialize_bytes: &[u8], serialize_unit_struct: &'static str);
    count!(serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64);

    fn serialize_f32(self, value: f32) -> Result<(), Refused> {
        self.real(f64::from(value));
        Ok(())
    }
    fn serialize_f64(self, value: f64) -> Result<(), Refused> {
        self.real(value);
        Ok(())
    }
    fn serialize_none(self) -> Result<(), Refused> {
        Ok(())
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Refused> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), Refused> {
        Ok(())
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Refused> {
        Ok(())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        value.serialize(self)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Refused> {
        Ok(self)
    }
    fn serialize_tuple(self, _: usize) -> Result<Self, Refused> {
        Ok(self)
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Refused> {
        Ok(self)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Refused> {
        Ok(self)
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Self, Refused> {
        Ok(self)
    }
    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Self, Refused> {
        match name {
            "BaseTree" => self.trees.push(Tree::default()),
            "Node" => match self.trees.last_mut() {
                Some(tree) => {
                    tree.nodes.push(TreeNode { threshold: f32::NAN, ..TreeNode::leaf(f64::NAN) });
                }
                None => return Err(Refused("its trees are not laid out as expected".to_owned())),
            },
            _ => {}
        }
        Ok(self)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Refused> {
        Ok(self)
    }
}

macro_rules! elements {
    ($($trait:ident::$method:ident),*) => {
        $(impl ser::$trait for &mut Reader {
            type Ok = ();
            type Error = Refused;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
                value.serialize(&mut **self)
            }
            fn end(self) -> Result<(), Refused> {
                Ok(())
            }
        })*
    };
}

elements!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

macro_rules! fields {
    ($($trait:ident),*) => {
        $(impl ser::$trait for &mut Reader {
            type Ok = ();
            type Error = Refused;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), Refused> {
                self.field = key;
                value.serialize(&mut **self)
            }
            fn end(self) -> Result<(), Refused> {
                Ok(())
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for &mut Reader {
    type Ok = ();
    type Error = Refused;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Result<(), Refused> {
        Ok(())
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        value.serialize(&mut **self)
    }
    fn end(self) -> Result<(), Refused> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::forest::leaf;
    use super::*;
    use smartcore::ensemble::extra_trees_regressor::{ExtraTreesRegressor, ExtraTreesRegressorParameters};
    use smartcore::ensemble::random_forest_regressor::{
        RandomForestRegressor, RandomForestRegressorParameters,
    };
    use smartcore::linalg::basic::matrix::DenseMatrix;

    #[test]
    fn extracted_trees_predict_what_smartcore_predicts() {
        let rows = 300_usize;
        let value = |row: usize, column: usize| ((row * 7919 + column * 104_729) % 1009) as f32 / 97.0;
        let values: Vec<f32> =
            (0..rows).flat_map(|row| (0..4).map(move |column| value(row, column))).collect();
        let x = DenseMatrix::new(rows, 4, values.clone(), false).unwrap();
        let y: Vec<f64> = values.chunks(4).map(|row| f64::from(row[0] * row[1]).sin()).collect();
        let extra = ExtraTreesRegressor::fit(&x, &y, ExtraTreesRegressorParameters::default().with_seed(5));
        let extra = extra.unwrap();
        let random = RandomForestRegressor::fit(&x, &y, RandomForestRegressorParameters::default()).unwrap();
        for (trees, expected) in [
            (extract(&extra).unwrap(), extra.predict(&x).unwrap()),
            (extract(&random).unwrap(), random.predict(&x).unwrap()),
        ] {
            assert!(trees.len() >= 10 && trees[0].nodes.len() > 100);
            for (row, expected) in values.chunks(4).zip(&expected) {
                let sum: f64 = trees.iter().map(|tree| leaf(tree, row)).sum();
                assert!((sum / trees.len() as f64 - expected).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn another_layout_is_refused_not_misread() {
        assert_eq!(extract(&serde_json::json!({"trees": []})).unwrap(), Vec::<Tree>::new());
        #[derive(serde::Serialize)]
        struct Node {
            output: f64,
        }
        assert!(extract(&Node { output: 1.0 }).is_err());
    }
}
