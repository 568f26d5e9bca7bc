package kern

func pause() { pauseAsm() }
