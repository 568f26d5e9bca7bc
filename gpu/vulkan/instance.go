//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"github.com/go-webgpu/goffi/ffi"
	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// instance is this process's connection to the Vulkan loader. There is one, and
// it is kept: drivers do not like to be loaded twice.
type instance struct {
	handle vk.Instance
	cmds   vk.Commands
	layers []string
	// Functions that the binding has no loaded wrapper for.
	memoryProperties2, matrixProperties unsafe.Pointer
}

var shared struct {
	sync.Once
	inst *instance
	err  error
}

// open returns the instance, made at the first call.
func open() (*instance, error) {
	shared.Do(func() { shared.inst, shared.err = newInstance() })
	return shared.inst, shared.err
}

// version of Vulkan that this package needs: subgroup sizes, memory model and
// 16-bit storage are part of it.
const (
	version13   = 1<<22 | 3<<12
	layersName  = "VK_LAYER_KHRONOS_validation"
	validateEnv = "TEZGAH_VALIDATE"
)

func newInstance() (*instance, error) {
	if err := vk.Init(); err != nil {
		return nil, fmt.Errorf("no Vulkan loader: %w", err)
	}
	i := &instance{}
	if err := i.cmds.LoadGlobal(); err != nil {
		return nil, fmt.Errorf("the Vulkan loader is broken: %w", err)
	}
	loader := uint32(1 << 22) // which has no function to ask
	if i.cmds.EnumerateInstanceVersion(&loader) != vk.Success || loader < version13 {
		return nil, fmt.Errorf("the Vulkan loader is of version %s, want 1.3", versionText(loader))
	}
	if os.Getenv(validateEnv) == "1" {
		if !i.hasLayer(layersName) {
			return nil, fmt.Errorf("%s=1 asks for the validation layer, which is not installed (Debian: vulkan-validationlayers)", validateEnv)
		}
		i.layers = []string{layersName}
	}
	var keep pinned
	defer keep.unpin()
	info := vk.InstanceCreateInfo{
		SType: vk.StructureTypeInstanceCreateInfo,
		PApplicationInfo: &vk.ApplicationInfo{
			SType:            vk.StructureTypeApplicationInfo,
			PApplicationName: keep.text("tezgah"),
			PEngineName:      keep.text("tezgah"),
			ApiVersion:       version13,
		},
		EnabledLayerCount:   uint32(len(i.layers)),
		PpEnabledLayerNames: keep.texts(i.layers),
	}
	if err := check("vkCreateInstance", i.cmds.CreateInstance(&info, nil, &i.handle)); err != nil {
		return nil, err
	}
	// LoadInstance ends with an error where there are no window functions; all
	// others are loaded by then.
	_ = i.cmds.LoadInstance(i.handle)
	vk.SetDeviceProcAddr(i.handle)
	i.memoryProperties2 = vk.GetInstanceProcAddr(i.handle, "vkGetPhysicalDeviceMemoryProperties2")
	i.matrixProperties = vk.GetInstanceProcAddr(i.handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR")
	if !i.cmds.HasPhysicalDeviceFeatures2() || i.memoryProperties2 == nil {
		return nil, errors.New("the Vulkan loader lacks functions of version 1.1")
	}
	return i, nil
}

func (i *instance) hasLayer(name string) bool {
	var n uint32
	if i.cmds.EnumerateInstanceLayerProperties(&n, nil) != vk.Success || n == 0 {
		return false
	}
	list := make([]vk.LayerProperties, n)
	i.cmds.EnumerateInstanceLayerProperties(&n, &list[0])
	for _, l := range list[:n] {
		if text(l.LayerName[:]) == name {
			return true
		}
	}
	return false
}

// physical lists the machine's Vulkan devices.
func (i *instance) physical() ([]vk.PhysicalDevice, error) {
	var n uint32
	if err := check("vkEnumeratePhysicalDevices", i.cmds.EnumeratePhysicalDevices(i.handle, &n, nil)); err != nil || n == 0 {
		return nil, err
	}
	list := make([]vk.PhysicalDevice, n)
	code := i.cmds.EnumeratePhysicalDevices(i.handle, &n, &list[0])
	if code != vk.Success && code != vk.Incomplete {
		return nil, check("vkEnumeratePhysicalDevices", code)
	}
	return list[:n], nil
}

// extensions are the names of what the driver offers beyond its version.
func (i *instance) extensions(d vk.PhysicalDevice) map[string]bool {
	names := map[string]bool{}
	var n uint32
	if i.cmds.EnumerateDeviceExtensionProperties(d, 0, &n, nil) != vk.Success || n == 0 {
		return names
	}
	list := make([]vk.ExtensionProperties, n)
	i.cmds.EnumerateDeviceExtensionProperties(d, 0, &n, &list[0])
	for _, e := range list[:n] {
		names[text(e.ExtensionName[:])] = true
	}
	return names
}

// matrixShapes asks for the products that the matrix units do.
func (i *instance) matrixShapes(d vk.PhysicalDevice) []vk.CooperativeMatrixPropertiesKHR {
	if i.matrixProperties == nil {
		return nil
	}
	call := func(n *uint32, list *vk.CooperativeMatrixPropertiesKHR) vk.Result {
		var code int32
		args := [3]unsafe.Pointer{unsafe.Pointer(&d), unsafe.Pointer(&n), unsafe.Pointer(&list)}
		if ffi.CallFunction(&vk.SigResultHandlePtrPtr, i.matrixProperties, unsafe.Pointer(&code), args[:]) != nil {
			return vk.ErrorInitializationFailed
		}
		return vk.Result(code)
	}
	var n uint32
	if call(&n, nil) != vk.Success || n == 0 {
		return nil
	}
	list := make([]vk.CooperativeMatrixPropertiesKHR, n)
	for k := range list {
		list[k].SType = vk.StructureTypeCooperativeMatrixPropertiesKhr
	}
	if code := call(&n, &list[0]); code != vk.Success && code != vk.Incomplete {
		return nil
	}
	return list[:n]
}

// pinned keeps Go memory where it is while Vulkan looks at it through a
// uintptr, which the garbage collector does not see.
type pinned struct{ runtime.Pinner }

func (p *pinned) unpin() { p.Unpin() }

// text is a C string.
func (p *pinned) text(s string) uintptr {
	b := append([]byte(s), 0)
	p.Pin(&b[0])
	return uintptr(unsafe.Pointer(&b[0]))
}

// texts is an array of C strings, 0 for none.
func (p *pinned) texts(list []string) uintptr {
	if len(list) == 0 {
		return 0
	}
	ptrs := make([]uintptr, len(list))
	for i, s := range list {
		ptrs[i] = p.text(s)
	}
	p.Pin(&ptrs[0])
	return uintptr(unsafe.Pointer(&ptrs[0]))
}

// text reads a C string from an array.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func versionText(v uint32) string {
	return fmt.Sprintf("%d.%d.%d", v>>22, v>>12&0x3ff, v&0xfff)
}
