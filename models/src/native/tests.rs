//! Graphs that contradict themselves, each made from a sound one by one change.

use super::Native;
use crate::onnx::ModelProto;
use crate::onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use crate::{
    Aggregate, Body, FeatureSchema, Forest, ModelMetadata, ModelSpec, Tree, TreeNode, export, physics,
};
use prost::bytes::Bytes;

fn sound() -> ModelProto {
    let names = ["subject_sm_active_ratio", "co_runner_sm_active_ratio"];
    let schema = FeatureSchema::new(&names.map(String::from)).unwrap();
    let leaf = TreeNode::leaf;
    let nodes =
        vec![TreeNode::split(2, 1.0, 1, 2), leaf(0.1), TreeNode::split(0, 0.5, 3, 4), leaf(0.2), leaf(0.4)];
    let trees = vec![Tree { nodes: nodes.clone() }, Tree { nodes }];
    let spec = ModelSpec {
        impute: vec![0.5; 2],
        physics: physics(&schema),
        body: Body::Forest(Forest { trees, aggregate: Aggregate::Sum, base: 0.0 }),
        upper_offset_log: 0.1,
        domain_lower: vec![0.0; 2],
        domain_upper: vec![1.0; 2],
        domain_missing: vec![false; 2],
        domain_distance: None,
        metadata: ModelMetadata::new(schema.clone(), "test"),
        schema,
    };
    crate::onnx::decode(&export(&spec).unwrap()).unwrap()
}

fn graph(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.as_mut().unwrap()
}

fn node<'a>(model: &'a mut ModelProto, name: &str) -> &'a mut NodeProto {
    graph(model).node.iter_mut().find(|node| node.name == name).unwrap()
}

fn attribute<'a>(model: &'a mut ModelProto, name: &str) -> &'a mut AttributeProto {
    node(model, "sum_of_trees").attribute.iter_mut().find(|attribute| attribute.name == name).unwrap()
}

fn tensor<'a>(model: &'a mut ModelProto, name: &str) -> &'a mut TensorProto {
    graph(model).initializer.iter_mut().find(|tensor| tensor.name == name).unwrap()
}

type Change = fn(&mut ModelProto);

#[test]
fn each_contradiction_is_refused_by_name() {
    use crate::Predictor as _;
    let model = sound();
    let predictions = Native::new(&model).unwrap().predict(&[0.9, 0.9, 0.1, 0.1]).unwrap();
    assert!((predictions[0].slowdown.get().ln() - 0.8).abs() < 1e-6, "{predictions:?}");
    assert!((predictions[1].slowdown.get().ln() - 0.2).abs() < 1e-6, "{predictions:?}");

    let cases: [(Change, &str); 38] = [
        (|m| m.graph = None, "the graph is absent"),
        (|m| m.metadata_props.clear(), "it has no `elastico.metadata`"),
        (|m| m.metadata_props[0].value = "{}".into(), "is not readable"),
        (
            |m| m.metadata_props[0].value = m.metadata_props[0].value.replace("model/1", "models/1"),
            "`elastico.models/1`",
        ),
        (
            |m| m.metadata_props[0].value = m.metadata_props[0].value.replace("subject_sm_a", "subject_a"),
            "digest",
        ),
        (|m| m.functions.push(Bytes::from_static(b"x")), "has functions"),
        (|m| m.opset_import[0].version = 7, "its operator set is 7, not 18"),
        (|m| m.opset_import[0].domain = "com.other".into(), "set com.other version 18"),
        (|m| m.ir_version = 3, "its ONNX format is 3, not 8"),
        (|m| graph(m).input.clear(), "has 0 inputs"),
        (|m| graph(m).input[0].name = "x".into(), "is not `features`"),
        (|m| graph(m).input[0].r#type = None, "is no float matrix"),
        (|m| graph(m).output.swap(0, 1), "is not the computed column `slowdown`"),
        (|m| graph(m).sparse_initializer.push(Bytes::from_static(b"x")), "sparse"),
        (
            |m| graph(m).initializer.retain(|t| t.name != "impute"),
            "reads `impute`, which nothing before it gives",
        ),
        (|m| tensor(m, "impute").dims = vec![1, 3], "holds 2 values, its shape says 3"),
        (|m| tensor(m, "impute").dims = vec![i64::MAX, i64::MAX], "too large to be counted"),
        (|m| tensor(m, "impute").dims = vec![-2], "has the dimension -2"),
        (|m| tensor(m, "impute").data_type = 11, "element type 11"),
        (|m| tensor(m, "impute").data_location = Some(1), "outside the file"),
        (|m| tensor(m, "impute").raw_data = Some(Bytes::from_static(b"abcde")), "ends within a number"),
        (
            |m| {
                tensor(m, "subject_demand_columns").raw_data =
                    Some(Bytes::from_static(&[9, 0, 0, 0, 0, 0, 0, 0]));
            },
            "reads column 9 of 2",
        ),
        (|m| node(m, "imputed").op_type = "Softmax".into(), "the operator Softmax"),
        (|m| node(m, "sum_of_trees").op_type = "SVMRegressor".into(), "the operator ai.onnx.ml.SVMRegressor"),
        (
            |m| node(m, "imputed").input[2] = "log_slowdown".into(),
            "reads `log_slowdown`, which nothing before it gives",
        ),
        (|m| node(m, "imputed").input.truncate(1), "has 1 inputs, not 3"),
        (|m| node(m, "imputed").output[0] = "missing".into(), "writes `missing`, which exists"),
        (|m| node(m, "raw").input[0] = "missing".into(), "node `raw` has an unfit input 0"),
        (|m| attribute(m, "nodes_falsenodeids").ints[0] = 1, "node 1 is reached twice"),
        (|m| attribute(m, "nodes_falsenodeids").ints[2] = 2, "node 2 is reached twice"),
        (|m| attribute(m, "nodes_truenodeids").ints[0] = 77, "has a child outside the tree"),
        (|m| attribute(m, "nodes_featureids").ints[0] = -1, "splits on feature -1"),
        (|m| attribute(m, "nodes_nodeids").ints[1] = 4, "out of order"),
        (|m| attribute(m, "nodes_values").floats[0] = f32::NAN, "has the threshold NaN"),
        (|m| attribute(m, "nodes_modes").strings[0] = Bytes::from_static(b"BRANCH_LT"), "mode BRANCH_LT"),
        (|m| attribute(m, "target_nodeids").ints[0] = 3, "entry 1 gives target 0 of node 3 of tree 0"),
        (|m| attribute(m, "target_weights").floats.truncate(2), "has 2 entries for 6 leaves"),
        (
            |m| attribute(m, "aggregate_function").s = Some(Bytes::from_static(b"MAX")),
            "aggregate_function MAX",
        ),
    ];
    for (index, (change, wanted)) in cases.into_iter().enumerate() {
        let mut broken = model.clone();
        change(&mut broken);
        let error =
            Native::new(&broken).err().unwrap_or_else(|| panic!("case {index} ({wanted}) is accepted"));
        assert!(error.to_string().contains(wanted), "case {index}: `{error}` lacks `{wanted}`");
    }
}

#[test]
fn a_later_format_asks_for_an_update() {
    use elastico_core::Hint as _;
    let model = sound();
    let cases: [(Change, &str); 5] = [
        (|m| m.ir_version = 11, "its ONNX format is 11, this one reads 8"),
        (|m| m.opset_import[0].version = 24, "its operator set is 24, this one reads 18"),
        (|m| m.opset_import[1].version = 5, "its operator set ai.onnx.ml is 5, this one reads 3"),
        (
            |m| m.metadata_props[0].value = m.metadata_props[0].value.replace("model/1", "model/2"),
            "its schema is elastico.model/2, this one reads elastico.model/1",
        ),
        (
            |m| m.metadata_props[0].value = r#"{"schema": "elastico.model/12", "unheard": [1]}"#.into(),
            "its schema is elastico.model/12",
        ),
    ];
    for (change, wanted) in cases {
        let mut newer = model.clone();
        change(&mut newer);
        newer.metadata_props.truncate(1);
        let file = crate::onnx::seal(prost::Message::encode_to_vec(&newer));
        let error = crate::load_bytes(&file, crate::Backend::Native).err().unwrap();
        assert!(error.to_string().contains(wanted), "`{error}` lacks `{wanted}`");
        assert!(error.hint().unwrap().starts_with("update ElastiCo"), "{error}");
        assert_eq!(ModelSpec::from_onnx(&file).unwrap_err().to_string(), error.to_string());
    }
}

#[test]
fn what_this_version_would_not_write_is_not_read_back() {
    use elastico_core::Hint as _;
    for change in [
        (|m| m.producer_version = "0.0.1".into()) as Change,
        |m| graph(m).node[0].name = "other".into(),
        |m| tensor(m, "domain_lower").raw_data = tensor(m, "domain_upper").raw_data.clone(),
    ] {
        let mut other = sound();
        change(&mut other);
        other.metadata_props.truncate(1);
        let file = crate::onnx::seal(prost::Message::encode_to_vec(&other));
        crate::load_bytes(&file, crate::Backend::Native).unwrap();
        let error = ModelSpec::from_onnx(&file).unwrap_err();
        assert!(matches!(error, crate::Error::NotReadBack { .. }), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn a_graph_that_would_fill_the_memory_is_refused() {
    let mut model = sound();
    let inputs: Vec<String> = vec!["raw".into(); 2048];
    let mut nodes = vec![NodeProto {
        input: inputs,
        output: vec!["wide0".into()],
        name: "wide0".into(),
        op_type: "Concat".into(),
        attribute: vec![AttributeProto {
            name: "axis".into(),
            i: Some(1),
            r#type: 2,
            ..AttributeProto::default()
        }],
        domain: String::new(),
    }];
    for index in 1..20 {
        let mut next = nodes[0].clone();
        next.input = vec![format!("wide{}", index - 1); 8];
        next.name = format!("wide{index}");
        next.output = vec![next.name.clone()];
        nodes.push(next);
    }
    let graph = graph(&mut model);
    let place = graph.node.iter().position(|node| node.name == "raw").unwrap() + 1;
    graph.node.splice(place..place, nodes);
    let error = Native::new(&model).err().unwrap();
    assert!(error.to_string().contains("wide"), "{error}");
}
