package gpu

import "fmt"

// maxGroups bounds the cache of bind groups; a training step of a deep model
// needs some thousands.
const maxGroups = 16384

// groupKey identifies a bind group: the pipeline, then for each binding the
// buffer (or uniform slot), the offset and the size.
type groupKey [1 + 3*maxSlots]uint64

// group is a cached bind group, an element of the list of recent use.
type group struct {
	key        groupKey
	handle     any
	users      []map[*group]struct{} // the sets of buffers and uniforms it is in
	prev, next *group

	pipeline *Pipeline // nil once it is dropped
	args     []groupArg
	uniforms []*uniform
	then     *group // what the next dispatch used the last time
	before   *group // whose then this is
}

// groupArg is a binding as a dispatch gave it.
type groupArg struct {
	buffer       *Buffer // nil for a uniform
	offset, size uint64
	contents     string
}

// groupCache finds bind groups by key and forgets the least recently used.
type groupCache struct {
	byKey map[groupKey]*group
	list  group  // head of the ring: next is the most recent
	last  *group // of the dispatch before
}

func (c *groupCache) init() {
	c.byKey = map[groupKey]*group{}
	c.list.prev, c.list.next = &c.list, &c.list
	c.last = &c.list
}

// touch moves g to the front of the list.
func (c *groupCache) touch(g *group) {
	if c.list.next == g {
		return
	}
	if g.next != nil {
		g.prev.next, g.next.prev = g.next, g.prev
	}
	g.prev, g.next = &c.list, c.list.next
	g.prev.next, g.next.prev = g, g
}

// drop forgets g and frees it once the GPU is done with it.
func (c *groupCache) drop(d *Device, g *group) {
	g.prev.next, g.next.prev = g.next, g.prev
	delete(c.byKey, g.key)
	for _, set := range g.users {
		delete(set, g)
	}
	g.follow(nil)
	if g.before != nil {
		g.before.follow(nil)
	}
	g.pipeline = nil
	handle := g.handle
	d.discard(func() { d.drv.freeGroup(handle) })
}

func (c *groupCache) dropAll(d *Device) {
	for c.list.next != &c.list {
		c.drop(d, c.list.next)
	}
}

// group returns the bind group of a dispatch. Steps of a training repeat, so it
// is mostly the one that followed the last one before: comparing is cheaper than
// looking up a key.
func (d *Device) group(p *Pipeline, args []Binding) (g *group, err error) {
	c := &d.groups
	if g = c.last.then; g.fits(p, args) {
		for _, u := range g.uniforms {
			d.uniforms.use(d, u)
		}
		c.touch(g)
	} else if g, err = d.findGroup(p, args); err != nil {
		return nil, err
	} else {
		c.last.follow(g)
	}
	c.last = g
	return g, nil
}

// follow makes next the group after g, nil for none.
func (g *group) follow(next *group) {
	if g.then != nil && g.then.before == g {
		g.then.before = nil
	}
	if g.then = next; next != nil {
		next.before = g
	}
}

// fits reports whether a dispatch with these arguments, one for each binding,
// uses g. What a group binds is alive as long as it is not dropped.
func (g *group) fits(p *Pipeline, args []Binding) bool {
	if g == nil || g.pipeline != p {
		return false
	}
	for i := range args {
		a, b := &args[i], &g.args[i]
		if a.uniform != nil {
			if b.buffer != nil || string(a.uniform) != b.contents {
				return false
			}
		} else if a.buffer == nil || a.buffer != b.buffer || a.offset != b.offset || a.size != b.size {
			return false
		}
	}
	return true
}

// findGroup finds a group by its key, or makes it. Everything about the bindings
// is checked when a group is made; finding one again only looks up a key.
func (d *Device) findGroup(p *Pipeline, args []Binding) (*group, error) {
	var key groupKey
	key[0] = p.id
	for i := range args {
		id, offset, size, err := d.resolve(p, i, &args[i])
		if err != nil {
			return nil, err
		}
		key[1+3*i], key[2+3*i], key[3+3*i] = id, offset, size
	}
	if g, ok := d.groups.byKey[key]; ok {
		d.groups.touch(g)
		return g, nil
	}
	return d.newGroup(p, args, &key)
}

// resolve turns binding i into a buffer id, an offset and a size; contents of
// a uniform get their place in device memory here.
func (d *Device) resolve(p *Pipeline, i int, a *Binding) (id, offset, size uint64, err error) {
	if a.uniform != nil {
		if p.slots[i].Kind != UniformSlot {
			return 0, 0, 0, invalid("%s: binding %d (%s) is %s, got the contents of a uniform", p.label, i, p.slots[i].Name, p.slots[i].Kind)
		}
		u, err := d.uniforms.find(d, a.uniform)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("gpu: %s: binding %d (%s): %w", p.label, i, p.slots[i].Name, err)
		}
		// The slot is named by its page and place; its size is part of it.
		return u.page.id, u.offset, uint64(len(u.contents)), nil
	}
	b := a.buffer
	if b == nil || b.handle == nil || b.dev != d {
		return 0, 0, 0, invalid("%s: binding %d (%s): %s", p.label, i, p.slots[i].Name, whyUnusable(b))
	}
	size = a.size
	if size == 0 && a.offset < b.bytes {
		size = b.bytes - a.offset
	}
	return b.id, a.offset, size, nil
}

// whyUnusable explains a buffer that cannot be bound.
func whyUnusable(b *Buffer) string {
	switch {
	case b == nil:
		return "the buffer is nil"
	case b.handle == nil:
		return fmt.Sprintf("buffer %q is released", b.label)
	}
	return fmt.Sprintf("buffer %q belongs to another device", b.label)
}

// newGroup checks the bindings, makes their bind group and caches it.
func (d *Device) newGroup(p *Pipeline, args []Binding, key *groupKey) (*group, error) {
	if len(d.groups.byKey) >= maxGroups {
		d.groups.drop(d, d.groups.list.prev)
	}
	g := &group{key: *key, pipeline: p, args: make([]groupArg, len(args))}
	d.entries = d.entries[:0]
	for i := range args {
		b, set := args[i].buffer, map[*group]struct{}(nil)
		g.args[i] = groupArg{buffer: b, offset: args[i].offset, size: args[i].size}
		if args[i].uniform != nil {
			u, err := d.uniforms.find(d, args[i].uniform)
			if err != nil {
				return nil, err
			}
			if n := uint64(len(args[i].uniform)); n < p.slots[i].minSize {
				return nil, invalid("%s: binding %d (%s): %d bytes of contents, but the kernel reads %d", p.label, i, p.slots[i].Name, n, p.slots[i].minSize)
			}
			b, set = u.page, u.groups
			g.args[i] = groupArg{contents: string(args[i].uniform)}
			g.uniforms = append(g.uniforms, u)
		} else {
			if err := d.checkBinding(p, i, b, key[2+3*i], key[3+3*i]); err != nil {
				return nil, err
			}
			if b.groups == nil {
				b.groups = map[*group]struct{}{}
			}
			set = b.groups
		}
		g.users = append(g.users, set)
		d.entries = append(d.entries, driverRange{b.handle, key[2+3*i], key[3+3*i]})
	}
	if err := checkAliases(p, args, key); err != nil {
		return nil, err
	}
	handle, err := d.drv.newGroup(p.label, p.handle, d.entries)
	if err != nil {
		return nil, d.failed(p.label+": bind group", err)
	}
	g.handle = handle
	for _, set := range g.users {
		set[g] = struct{}{}
	}
	d.groups.byKey[*key] = g
	d.groups.touch(g)
	return g, nil
}

// checkBinding checks one bound range against the kernel and the limits.
func (d *Device) checkBinding(p *Pipeline, i int, b *Buffer, offset, size uint64) error {
	align, most := d.limits.StorageAlign, d.limits.BindingSize
	if p.slots[i].Kind == UniformSlot {
		align, most = uniformAlign, d.limits.UniformSize
	}
	name := fmt.Sprintf("%s: binding %d (%s): ", p.label, i, p.slots[i].Name)
	switch {
	case size == 0 || offset > b.bytes || size > b.bytes-offset:
		return invalid("%sbytes %d to %d are outside of %q, which has %d", name, offset, offset+size, b.label, b.size)
	case offset%align != 0:
		return invalid("%soffset %d in %q must be a multiple of %d", name, offset, b.label, align)
	case size%4 != 0:
		return invalid("%ssize %d of a range of %q must be a multiple of 4", name, size, b.label)
	case size < p.slots[i].minSize:
		return invalid("%s%d bytes of %q, but the kernel reads at least %d", name, size, b.label, p.slots[i].minSize)
	case size > most:
		return invalid("%s%d bytes of %q, but a kernel can see at most %d on %s", name, size, b.label, most, d.info.Name)
	case p.slots[i].Kind == UniformSlot && b.bytes > d.limits.UniformSize:
		return invalid("%sbuffer %q has %d bytes; one that uniforms are read from may have %d", name, b.label, b.bytes, d.limits.UniformSize)
	}
	return nil
}

// checkAliases refuses what a browser would refuse: a buffer that is bound for
// reading and for writing, and writable ranges that overlap.
func checkAliases(p *Pipeline, args []Binding, key *groupKey) error {
	for i := range args {
		for j := 0; j < i; j++ {
			if args[i].buffer == nil || args[i].buffer != args[j].buffer {
				continue
			}
			a, b := p.slots[j], p.slots[i]
			if a.Kind != ReadWrite && b.Kind != ReadWrite {
				continue
			}
			if a.Kind != b.Kind {
				return invalid("%s: %q is bound both as %s (%s) and as %s (%s); WebGPU forbids that in one dispatch",
					p.label, args[i].buffer.label, a.Kind, a.Name, b.Kind, b.Name)
			}
			if key[2+3*i] < key[2+3*j]+key[3+3*j] && key[2+3*j] < key[2+3*i]+key[3+3*i] {
				return invalid("%s: the writable ranges %s and %s of %q overlap", p.label, a.Name, b.Name, args[i].buffer.label)
			}
		}
	}
	return nil
}
