//! The fake device against the suite that every device has to pass.

use std::sync::Arc;

use hippihx_tests::conformance::{self, Subject, ThroughMemfd};
use hippihx_tests::objects;
use hippihxd::device::fake::{FakeDevice, Options};

#[test]
fn the_fake_device_conforms() {
    let device = FakeDevice::new(Options::new("gfx1030")).expect("a fake device");
    let subject = Subject {
        device: &device,
        slot: "gfx1030",
        image: Arc::clone(&objects::read("gfx1030")),
        reach: &ThroughMemfd,
        takes_memfds: true,
        computes: true,
    };
    let passed = conformance::assert_passed(&conformance::run_all(&subject));
    assert_eq!(passed, conformance::checks().len(), "every check applies to the fake");
}
