//! Waits for jobs, and the events that end them.

use super::*;

#[test]
fn an_ack_that_frees_the_next_of_its_key_ends_a_wait_in_the_same_process() {
    let machine = machine();
    let topic = filled(&machine, 4, SyncMode::None);
    let queue = queue(&topic, KEYED);
    let out = take(&queue, &topic, 4);
    assert_eq!(offsets(&out), [0, 1, 2]);
    let began = Instant::now();
    let ended = std::thread::scope(|scope| {
        let waits = scope.spawn(|| queue.wait(&topic, Some(LEASE / 2), &|| false));
        std::thread::sleep(Duration::from_millis(20)); // sleep: until it waits
        ack(&queue, &topic, &out[..1]).unwrap();
        waits.join().unwrap()
    });
    assert_eq!(ended.unwrap(), Wait::News);
    assert!(began.elapsed() < LEASE / 4, "it slept until its time was over");
}
