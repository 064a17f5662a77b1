// Package consul is the store on Consul's KV: reads and compare-and-commit by its
// transactions, mirrors that follow a journal, and leases of its own making.
//
// It guarantees what storetest asks of any store: a mirror hears of every Update
// as a whole, one change costs it what changed and not what there is, and who
// holds a lease knows that it is over no later than anybody else.
//
// It must not rely on Consul's sessions (they live ten seconds at least, up to
// twice as long as asked for, and what they delete no journal tells), nor on
// keys that others write under its prefixes by hand.
package consul
