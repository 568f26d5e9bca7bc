package gpu

const (
	uniformSlotSize  = 256      // bytes of a place, WebGPU's offset alignment
	uniformPageSize  = 64 << 10 // bytes of a page: 256 places
	maxUniformPlaces = 4096     // 16 pages, 1 MiB
)

// uniform is a place in device memory with known contents, an element of the
// list of recent use.
type uniform struct {
	contents   string
	page       *Buffer
	offset     uint64
	groups     map[*group]struct{} // cached bind groups that read it
	handed     uint64              // Device.handed when it was last used
	prev, next *uniform
}

// uniformCache keeps the contents of uniforms by value. When it is full the
// place that was not used for the longest time is written anew.
type uniformCache struct {
	byContents map[string]*uniform
	list       uniform // head of the ring: next is the most recent
	pages      []*Buffer
	used       int // places taken, from the first page on
}

func (c *uniformCache) init() {
	c.byContents = map[string]*uniform{}
	c.list.prev, c.list.next = &c.list, &c.list
}

// find returns the place that holds the contents, padded with zeros to a
// multiple of 16 bytes.
func (c *uniformCache) find(d *Device, contents []byte) (*uniform, error) {
	if len(contents) == 0 || len(contents) > uniformSlotSize {
		return nil, invalid("a uniform of %d bytes, want 1 to %d: put it into a buffer", len(contents), uniformSlotSize)
	}
	var padded [uniformSlotSize]byte
	n := copy(padded[:], contents)
	if u, ok := c.byContents[string(padded[:(n+15)&^15])]; ok {
		c.use(d, u)
		return u, nil
	}
	return c.add(d, contents)
}

// use notes that u is needed now.
func (c *uniformCache) use(d *Device, u *uniform) {
	c.touch(u)
	u.handed = d.handed
}

// touch moves u to the front of the list.
func (c *uniformCache) touch(u *uniform) {
	if c.list.next == u {
		return
	}
	if u.next != nil {
		u.prev.next, u.next.prev = u.next, u.prev
	}
	u.prev, u.next = &c.list, c.list.next
	u.prev.next, u.next.prev = u, u
}

// add writes contents to a fresh place, or to the least recently used one.
func (c *uniformCache) add(d *Device, contents []byte) (*uniform, error) {
	padded := make([]byte, (len(contents)+15)&^15)
	copy(padded, contents)
	u, fresh, err := c.place(d)
	if err != nil {
		return nil, err
	}
	u.contents = string(padded)
	if err := d.upload(u.page, u.offset, padded, fresh); err != nil {
		return nil, err
	}
	c.byContents[u.contents] = u
	c.use(d, u)
	return u, nil
}

// place finds room for contents. A place that is used again loses its bind
// groups; its new contents are written in call order, after earlier readers.
func (c *uniformCache) place(d *Device) (u *uniform, fresh bool, err error) {
	if c.used == maxUniformPlaces {
		u = c.list.prev
		for g := range u.groups {
			d.groups.drop(d, g)
		}
		delete(c.byContents, u.contents)
		return u, u.handed < d.handed, nil
	}
	const perPage = uniformPageSize / uniformSlotSize
	if c.used == len(c.pages)*perPage {
		page, err := d.NewBuffer("uniforms", uniformPageSize)
		if err != nil {
			return nil, false, err
		}
		c.pages = append(c.pages, page)
	}
	u = &uniform{
		page:   c.pages[c.used/perPage],
		offset: uint64(c.used%perPage) * uniformSlotSize,
		groups: map[*group]struct{}{},
	}
	c.used++
	return u, true, nil
}
