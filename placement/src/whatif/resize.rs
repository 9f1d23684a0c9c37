//! More or fewer GPUs in a pool.

use crate::Error;
use crate::cluster::{Cluster, MOST_GPUS};
use elastico_core::PoolId;
use std::str::FromStr;

/// How many GPUs to add or to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Gpus(u32),
    /// All that the pool has.
    All,
}

/// A pool and one amount or more, as `h100:8,16,all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolAmounts {
    /// The pool.
    pub pool: PoolId,
    /// The amounts, in the order of the text.
    pub amounts: Vec<Amount>,
}

impl FromStr for PoolAmounts {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |rule| Error::Option { field: "POOL:GPUS", value: format!("`{text}`"), rule };
        // A pool's id may hold a colon, an amount may not.
        let (pool, amounts) = text
            .rsplit_once(':')
            .ok_or_else(|| refuse("it must be a pool and GPUs, for example h100:8,16"))?;
        let pool = PoolId::new(pool).map_err(|_| refuse("the pool before the colon must be an id"))?;
        let amount = |text: &str| match text.trim() {
            "all" => Ok(Amount::All),
            number => match number.parse() {
                Ok(0) | Err(_) => Err(refuse("GPUs must be whole numbers from 1, or `all`")),
                Ok(gpus) => Ok(Amount::Gpus(gpus)),
            },
        };
        Ok(Self { pool, amounts: amounts.split(',').map(amount).collect::<Result<_, _>>()? })
    }
}

impl Amount {
    /// The amount in a pool of a cluster, as a change of its GPUs.
    pub(super) fn signed(self, cluster: &Cluster, pool: &PoolId, grows: bool) -> Result<i64, Error> {
        let has = cluster.get(pool.as_str())?.gpu_count();
        Ok(match (self, grows) {
            (Self::Gpus(gpus), true) => i64::from(gpus),
            (Self::Gpus(gpus), false) => -i64::from(gpus),
            (Self::All, false) => -i64::from(has),
            (Self::All, true) => {
                return Err(Error::Option {
                    field: "add",
                    value: "`all`".to_owned(),
                    rule: "only --remove takes `all`",
                });
            }
        })
    }
}

/// The cluster with more or fewer GPUs in one pool. Nodes come and go whole, the last one perhaps not full; each GPU
/// brings its part of the host.
pub(super) fn resized(cluster: &Cluster, pool: &PoolId, change: i64) -> Result<Cluster, Error> {
    let has = cluster.get(pool.as_str())?.gpu_count();
    let count = i64::from(has).checked_add(change);
    let most = i64::try_from(MOST_GPUS).unwrap_or(i64::MAX);
    let count = count.filter(|count| *count <= most).and_then(|count| u32::try_from(count).ok());
    let Some(count) = count else {
        return Err(Error::Resize { pool: pool.to_string(), has, change });
    };
    let mut cluster = cluster.clone();
    for pool in cluster.pool.iter_mut().filter(|known| known.id == *pool) {
        pool.gpus_per_node = pool.gpus_per_node.max(1);
        pool.nodes = count.div_ceil(pool.gpus_per_node);
        pool.gpus = (count != pool.nodes * pool.gpus_per_node).then_some(count);
    }
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_refused() {
        let read = "h100:8,16,all".parse::<PoolAmounts>().unwrap();
        assert_eq!(read.pool.as_str(), "h100");
        assert_eq!(read.amounts, [Amount::Gpus(8), Amount::Gpus(16), Amount::All]);
        for bad in ["h100", "h100:", ":8", "h100:0", "h100:-4", "h100:8,x", "h100:4294967296"] {
            assert!(bad.parse::<PoolAmounts>().is_err(), "{bad}");
        }
    }
}
