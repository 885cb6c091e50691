//! A device that multiplies f32 matrices itself and leaves all other ops to another device.

use teeny_core::{DType, Device, DeviceInfo, DeviceRef, Op, Outputs, Result, StorageRef, Tensor};

#[derive(Debug)]
pub struct MatmulOnly(pub DeviceRef);

impl Device for MatmulOnly {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "matmul_only".into(), description: "rows of B, added".into() }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.0.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.0.download(x)
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        let Op::Matmul { lhs, rhs } = *op else { return self.0.execute(op) };
        let (shape, DType::F32) = op.outputs()?[0] else { return self.0.execute(op) };
        let (a, b, mut y) = (lhs.to_vec::<f32>()?, rhs.to_vec::<f32>()?, vec![0.0; shape.numel()]);
        let [m, k, n] = [(lhs, 2), (lhs, 1), (rhs, 1)].map(|(x, i)| x.shape()[x.ndim() - i]);
        for (i, y) in y.chunks_mut(n.max(1)).enumerate() {
            for l in 0..k {
                let b = &b[(i / m * k + l) * n..][..n]; // row l of matrix i / m of the batch
                y.iter_mut().zip(b).for_each(|(y, b)| *y += a[i * k + l] * b);
            }
        }
        Ok(Some(Tensor::from_vec(y, shape, &self.0)?.storage().clone().into()))
    }
    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }
}
