//! What a queue says of itself in numbers.

use super::*;

#[test]
fn the_numbers_name_each_process_that_holds_jobs_and_how_many() {
    let machine = machine();
    let topic = filled(&machine, 20, SyncMode::Durable);
    let (second, third) = (machine.process(), machine.process());
    let (second, third) = (topic_on(&second).unwrap(), topic_on(&third).unwrap());
    let [mine, yours, theirs] = [&topic, &second, &third].map(|topic| queue(topic, SMALL));
    assert_eq!(take(&mine, &topic, 3).len(), 3);
    assert_eq!(take(&yours, &second, 2).len(), 2);
    let done = take(&theirs, &third, 4);
    ack(&theirs, &third, &done).unwrap();
    let info = mine.info(&topic).unwrap();
    let mut counts: Vec<_> = info.holders.iter().map(|(_, count)| *count).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 3], "a process without jobs is not named: {info:?}");
    assert_eq!((info.leased, info.done, info.returned, info.waiting), (5, 4, 0, 11));
}

#[test]
fn a_new_queue_begins_at_the_first_record_that_the_topic_keeps() {
    let machine = machine();
    let topic = filled(&machine, 20, SyncMode::Durable);
    topic.trim(&[(0, 5)]).unwrap();
    let queue = queue(&topic, SMALL);
    let info = queue.info(&topic).unwrap();
    assert_eq!((info.floor, info.head, info.trimmed, info.waiting), (5, 5, 0, 15));
    assert_eq!(offsets(&take(&queue, &topic, 2)), [5, 6]);
}
