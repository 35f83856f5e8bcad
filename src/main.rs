fn main() {
    let f = std::env::args().nth(1).unwrap();
    let out = std::env::args().nth(2);
    let t = std::time::Instant::now();
    let mut e = docwharf::seal::Effort::new(Default::default()); e.durable=true;
    let m = docwharf::seal::Meter::default();
    let p = if let Some(o) = out {
        let _ = std::fs::remove_dir_all(&o); std::fs::create_dir(&o).unwrap();
        let s = docwharf::seal::seal(f.as_ref(), &docwharf::seal::Space::Dir(o.into()), &e, &m);
        match s { Err(e) => { println!("{}", docwharf::base::chain::Chain(&e)); return }, Ok(s) => {println!("{} {}", s.adopted, s.image_len); s.proven }}
    } else { match docwharf::seal::verify(f.as_ref(), &e, &m) { Err(e) => { println!("{}", docwharf::base::chain::Chain(&e)); return }, Ok(s) => s } };
    println!("{:?} {} files {} {:?}", p.id, p.files.len(), p.content_len(), t.elapsed());
}
