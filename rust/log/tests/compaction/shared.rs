//! Compaction of topics with several partitions.

use super::*;

#[test]
fn partitions_are_compacted_each_by_itself_and_at_once() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let prices = Topic::open(&store, "prices", &options(3)).unwrap().with_sync(SyncMode::None);
    let mut last = HashMap::new();
    for i in 0..3000u64 {
        let (partition, number) = ((i % 3) as u32, i % 12);
        let (key, value) = (key(number), value(i, 200));
        let record = Record { key: Some(&key), value: Some(&value), ..Record::default() };
        let at = prices.append(partition, &record, None).unwrap();
        last.insert((partition, number), (at, i));
    }
    seal(&prices);
    compact(&prices).unwrap();
    for partition in 0..3 {
        assert_eq!(prices.end(partition).unwrap(), 1000);
        let mut scan = prices.scan(partition, 0, None).unwrap();
        let mut there = Vec::new();
        while let Some(record) = scan.next_record().unwrap() {
            there.push((
                record.offset(),
                u64::from_le_bytes(record.value().unwrap()[..8].try_into().unwrap()),
            ));
        }
        let mut wanted: Vec<_> =
            last.iter().filter(|((p, _), _)| *p == partition).map(|(_, found)| *found).collect();
        wanted.sort_unstable();
        assert_eq!(there, wanted, "{partition}");
    }
    is_sound(&store, "partitions");
}
