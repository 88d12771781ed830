//! The field numbers of ONNX's messages that Sequor reads or writes.

/// `ModelProto`
pub(super) mod model {
    pub(in super::super) const GRAPH: u32 = 7;
}

/// `GraphProto`
pub(super) mod graph {
    pub(in super::super) const NODE: u32 = 1;
    pub(in super::super) const INITIALIZER: u32 = 5;
    pub(in super::super) const INPUT: u32 = 11;
    pub(in super::super) const OUTPUT: u32 = 12;
    pub(in super::super) const VALUE_INFO: u32 = 13;
}

/// `NodeProto`
pub(super) mod node {
    pub(in super::super) const INPUT: u32 = 1;
    pub(in super::super) const OUTPUT: u32 = 2;
    pub(in super::super) const NAME: u32 = 3;
    pub(in super::super) const OP_TYPE: u32 = 4;
    pub(in super::super) const ATTRIBUTE: u32 = 5;
    pub(in super::super) const DOMAIN: u32 = 7;
}

/// `AttributeProto`
pub(super) mod attribute {
    pub(in super::super) const NAME: u32 = 1;
    pub(in super::super) const INT: u32 = 3;
    pub(in super::super) const TEXT: u32 = 4;
}

/// `TensorProto`
pub(super) mod tensor {
    pub(in super::super) const DIMS: u32 = 1;
    pub(in super::super) const DATA_TYPE: u32 = 2;
    pub(in super::super) const NAME: u32 = 8;
}

/// `ValueInfoProto` and the messages within it.
pub(super) mod value {
    pub(in super::super) const NAME: u32 = 1;
    pub(in super::super) const TYPE: u32 = 2;
    /// `TypeProto`
    pub(in super::super) const TENSOR: u32 = 1;
    /// `TypeProto.Tensor`
    pub(in super::super) const ELEMENT: u32 = 1;
    pub(in super::super) const SHAPE: u32 = 2;
    /// `TensorShapeProto`
    pub(in super::super) const DIM: u32 = 1;
    /// `TensorShapeProto.Dimension`
    pub(in super::super) const DIM_VALUE: u32 = 1;
    pub(in super::super) const DIM_NAME: u32 = 2;
}

/// `TensorProto.DataType`
pub(super) mod element {
    pub(in super::super) const FLOAT: u64 = 1;
    pub(in super::super) const BOOL: u64 = 9;
    pub(in super::super) const FLOAT16: u64 = 10;
    pub(in super::super) const DOUBLE: u64 = 11;
    pub(in super::super) const BFLOAT16: u64 = 16;
}
