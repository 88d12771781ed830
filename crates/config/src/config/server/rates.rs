//! Capacities of the resources for runs of instances: `rate_limit_resource`.

/// The capacity of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceLimit {
    pub name: String,
    pub count: u32,
    /// `None` means every device; for a shared resource, all devices together.
    pub device: Option<u16>,
}

impl ResourceLimit {
    /// Parses `NAME:COUNT` or `NAME:COUNT:DEVICE`.
    pub fn parse(text: &str) -> Result<ResourceLimit, String> {
        let wrong = || format!("\"{text}\" is no resource: write NAME:COUNT, or NAME:COUNT:DEVICE");
        let mut parts = text.split(':');
        let name = parts.next().filter(|name| !name.is_empty()).ok_or_else(wrong)?.to_owned();
        let count = parts.next().and_then(|count| count.parse().ok()).ok_or_else(wrong)?;
        let device = parts.next().map(|device| device.parse().map_err(|_| wrong())).transpose()?;
        match parts.next() {
            None => Ok(ResourceLimit { name, count, device }),
            Some(_) => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_has_a_count_and_may_have_a_device() {
        let limit = |count, device| Ok(ResourceLimit { name: "R1".to_owned(), count, device });
        assert_eq!(ResourceLimit::parse("R1:4"), limit(4, None));
        assert_eq!(ResourceLimit::parse("R1:1:2"), limit(1, Some(2)));
        for wrong in ["R1", "R1:", ":1", "R1:x", "R1:1:", "R1:1:2:3", "R1:-1"] {
            assert!(ResourceLimit::parse(wrong).is_err(), "{wrong}");
        }
    }
}
